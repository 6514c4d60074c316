"""How each family of models writes its tool calls, as grammars: mlx-lm has the parsers and the markers, not these.

A model whose family is not here is held to the calls of `hermes`, which are read whatever the model.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.hermes import HERMES_END, HERMES_START
from engine.lark import Rules, either
from engine.schemas import Schema, is_string, properties, resolved, rooted, to_words

INDEX = "/[0-9]{1,2}/"


class Signature(NamedTuple):
    """A tool that may be called, and the schema its arguments are held to."""

    name: str
    parameters: Schema


class Dialect(NamedTuple):
    """The calls of a family: `joint` stands between those of one block, and is None where each has its own."""

    start: str
    end: str
    call: Callable[[Rules, Signature], str]
    joint: str | None = None
    fits: Callable[[Signature], bool] = lambda _: True


def to_calls(rules: Rules, dialect: Dialect, tools: list[Signature], begin: str, *, only_one: bool) -> str:
    """Write one call, or several, of a choice of tools; `begin` writes the first marker and what leads to it."""
    call = either(dialect.call(rules, tool) for tool in tools)
    more = f"({rules.spell(dialect.joint)} {call})*" if dialect.joint and not only_one else ""
    if dialect.joint == "" and not only_one:
        more = f"{call}*"
    return rules.rule(f"{begin} {call} {more} {rules.spell(dialect.end)}")


def in_json(form: str) -> Callable[[Rules, Signature], str]:
    """Write calls whose arguments are a JSON object; `form` has @name, @arguments and maybe @index in it."""

    def call(rules: Rules, tool: Signature) -> str:
        quoted = json.dumps(tool.name, ensure_ascii=False)[1:-1]
        places = {"@name": rules.spell(quoted), "@arguments": rules.json(tool.parameters), "@index": INDEX}
        parts = re.split("(@name|@arguments|@index)", form.replace("@name", quoted))
        return rules.rule(" ".join(places.get(part) or rules.spell(part) for part in parts if part))

    return call


class Tags(NamedTuple):
    """Calls that give each argument a tag of its own: strings as they are, all else as JSON."""

    opening: str
    key: str
    close: str
    closing: str

    def call(self, rules: Rules, tool: Signature) -> str:
        """Write a call of one tool."""
        root = tool.parameters
        required = root.get("required") or []
        given = []
        for name, schema in properties(root).items():
            type_ = "string" if is_string(resolved(schema, root)) else "json"
            key = self.key.replace("@name", name).replace("@type", type_)
            tag = rules.rule(f"{rules.spell(key)} {self._value(rules, schema, root)}")
            given.append(tag if name in required else f"{tag}?")
        return rules.rule(
            " ".join([rules.spell(self.opening.replace("@name", tool.name)), *given, rules.spell(self.closing)])
        )

    def _value(self, rules: Rules, schema: Any, root: Schema) -> str:
        schema = resolved(schema, root)
        if not is_string(schema):
            return f"{rules.json(to_part(schema, root))} {rules.spell(self.close)}"
        if words := to_words(schema):
            return f"{either(map(rules.spell, words))} {rules.spell(self.close)}"
        return rules.until(self.close, f"(?s:.{to_length(schema)})")


class Keywords(NamedTuple):
    """Calls that read like code, `name(key=value, key=value)`; `quote` stands around strings, or they are JSON."""

    opening: str
    assign: str
    comma: str
    closing: str
    quote: str = ""

    def call(self, rules: Rules, tool: Signature) -> str:
        """Write a call of one tool."""
        root = tool.parameters
        required = root.get("required") or []
        given = [
            (f"{rules.spell(name + self.assign)} {self._value(rules, schema, root)}", name in required)
            for name, schema in properties(root).items()
        ]
        listed = self._list(rules, given)
        return rules.rule(
            f"{rules.spell(self.opening.replace('@name', tool.name))} {listed} {rules.spell(self.closing)}"
        )

    def _list(self, rules: Rules, given: list[tuple[str, bool]]) -> str:
        """Write a list whose optional members may be missing, with a comma between those that are there."""
        first, rest = "", ""
        for value, is_required in reversed(given):
            found = f"{value} {rest}"
            first = rules.rule(found if is_required else f"{found} | {first or chr(34) * 2}")
            after = f"{rules.spell(self.comma)} {found}"
            rest = rules.rule(after if is_required else f"{after} | {rest or chr(34) * 2}")
        return first

    def _value(self, rules: Rules, schema: Any, root: Schema) -> str:
        schema = resolved(schema, root)
        if not (self.quote and is_string(schema)):
            return rules.json(to_part(schema, root))
        if words := to_words(schema):
            return f"{rules.spell(self.quote)} {either(map(rules.spell, words))} {rules.spell(self.quote)}"
        return f"{rules.spell(self.quote)} {rules.until(self.quote, f'[^{{}}]{to_length(schema)}')}"

    def fits(self, tool: Signature) -> bool:
        """Tell whether the calls of a tool can be written, and read again by mlx-lm's parser."""
        parts = properties(tool.parameters)
        flat = all(is_flat(resolved(part, tool.parameters)) for part in parts.values()) or not self.quote
        return flat and all(name.isidentifier() for name in [tool.name, *parts])


def is_flat(schema: Any) -> bool:
    """Tell whether a value is a word, a number or a truth value."""
    return is_string(schema) or (isinstance(schema, dict) and schema.get("type") in {"integer", "number", "boolean"})


def to_length(schema: Any) -> str:
    """Write how often a string may repeat a character; what may also be no string has no limit."""
    sized = schema if isinstance(schema, dict) and schema.get("type") == "string" else {}
    return f"{{{sized.get('minLength', 0)},{sized.get('maxLength', '')}}}"


def to_part(schema: Any, root: Schema) -> Schema:
    """Give the schema of one argument, to be held to by itself."""
    return {**rooted(schema if isinstance(schema, dict) else {}, root), "x-guidance": root.get("x-guidance", {})}


HERMES = Dialect(HERMES_START, HERMES_END, in_json('\n{"name": "@name", "arguments": @arguments}\n'))

# fmt: off
GLM = Tags("@name", "<arg_key>@name</arg_key><arg_value>", "</arg_value>", "")
LONGCAT = Tags("@name", "<longcat_arg_key>@name</longcat_arg_key><longcat_arg_value>", "</longcat_arg_value>", "")
QWEN_CODER = Tags("\n<function=@name>\n", "<parameter=@name>\n", "\n</parameter>\n", "</function>\n")
MINIMAX = Tags('\n<invoke name="@name">\n', '<parameter name="@name">', "</parameter>\n", "</invoke>")
MINICPM = Tags('"@name">', '<param name="@name">', "</param>", "")
PYTHON = Keywords("@name(", "=", ", ", ")")
GEMMA = Keywords("call:@name{", ":", ",", "}", "<escape>")
GEMMA_4 = Keywords("call:@name{", ":", ",", "}", '<|"|>')

# By the name of mlx-lm's parser.
DIALECTS = {
    "json_tools":     HERMES,
    "mistral":        Dialect("[TOOL_CALLS]", "", in_json("@name[ARGS]@arguments")),
    "kimi_k2":        Dialect("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", in_json(
                          "<|tool_call_begin|>functions.@name:@index<|tool_call_argument_begin|>@arguments"
                          "<|tool_call_end|>"), joint=""),
    "kimi_k3":        Dialect("<|open|>tools<|sep|>", "<|close|>tools<|sep|>", in_json(
                          '<|open|>call tool="@name" index="@index"<|sep|><|open|>json type="object"<|sep|>@arguments'
                          "<|close|>json<|sep|><|close|>call<|sep|>"), joint=""),
    "qwen3_coder":    Dialect("<tool_call>", "</tool_call>", QWEN_CODER.call),
    "glm47":          Dialect("<tool_call>", "</tool_call>", GLM.call),
    "laguna":         Dialect("<tool_call>", "</tool_call>", GLM.call),
    "longcat":        Dialect("<longcat_tool_call>", "</longcat_tool_call>", LONGCAT.call,
                              fits=lambda tool: bool(properties(tool.parameters))),
    "minimax_m2":     Dialect("<minimax:tool_call>", "\n</minimax:tool_call>", MINIMAX.call, joint=""),
    "minicpm5":       Dialect("<function name=", "</function>", MINICPM.call),
    "pythonic":       Dialect("<|tool_call_start|>[", "]<|tool_call_end|>", PYTHON.call, joint=", ",
                              fits=PYTHON.fits),
    "function_gemma": Dialect("<start_function_call>", "<end_function_call>", GEMMA.call, fits=GEMMA.fits),
    "gemma4":         Dialect("<|tool_call>", "<tool_call|>", GEMMA_4.call, fits=GEMMA_4.fits),
}
# fmt: on


def to_dialect(tokenizer: Any, tools: list[Signature]) -> Dialect:
    """Choose how a model is to write the calls of these tools."""
    module = getattr(tokenizer.tool_parser, "__module__", "") or ""
    dialect = DIALECTS.get(module.rpartition(".")[2], HERMES) if tokenizer.has_tool_calling else HERMES
    return dialect if all(map(dialect.fits, tools)) else HERMES
