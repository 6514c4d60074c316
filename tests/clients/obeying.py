"""What makes the scripted model obey: values that fit a schema, taken from what it was told, and the product's grammar.

llguidance reads the schemas as it does for a real model, but over bytes instead of a model's tokens. So a schema that
no model could be held to is refused here too, and an answer that the grammar does not take is a fault of the script.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engine.errors import GrammarError
from engine.grammar import to_reason
from engine.pieces import Constraint, Tools
from engine.schemas import CHOICES, Schema, properties, resolved, to_held, to_words

BYTES = LLTokenizer("byte")
NAME = re.compile(r"\b[A-Z][a-z]+\b")
NUMBER = re.compile(r"-?\d+")
PLACE = re.compile(r"\b(?:in|of|for) ([A-Z]\w+)")
FREE_FORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def to_functions(tools: Tools) -> dict[str, Schema]:
    """Give the schemas of the arguments, by the names of the tools; a free-form tool takes one string."""
    return {tool[tool["type"]]["name"]: tool[tool["type"]].get("parameters", FREE_FORM) for tool in tools}


class Told:
    """What a task tells: each name and number fills one place of an answer, in the order they come."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._names, self._numbers = iter(NAME.findall(task)), iter(NUMBER.findall(task))

    def fill(self, schema: Any, root: Schema, key: str = "") -> Any:
        """Make a value of a schema."""
        schema = resolved(schema, root)
        if words := to_words(schema):
            return next((word for word in words if str(word) in self._task), words[0])
        if choice := next(_choices(schema), None):
            return self.fill(choice, root, key)
        return getattr(self, f"_{_kind(schema)}")(schema, root, key)

    def _object(self, schema: Schema, root: Schema, _: str) -> dict[str, Any]:
        return {name: self.fill(part, root, name) for name, part in properties(schema).items()}

    def _array(self, schema: Schema, root: Schema, key: str) -> list[Any]:
        return [self.fill(schema.get("items", {}), root, key) for _ in range(max(1, schema.get("minItems", 0)))]

    def _string(self, _: Schema, __: Schema, key: str) -> str:
        place = PLACE.search(self._task)
        return place[1] if place and key == "city" else next(self._names, "here")

    def _integer(self, *_: Any) -> int:
        return int(next(self._numbers, "0"))

    def _number(self, *_: Any) -> float:
        return float(next(self._numbers, "0"))

    def _boolean(self, *_: Any) -> bool:
        return True

    def _null(self, *_: Any) -> None:
        return None


def check(constraint: Constraint, tools: Tools) -> None:
    """Refuse what no model could be held to. Raises GrammarError."""
    for grammar, name in _grammars(constraint, tools):
        is_wrong, said = LLMatcher.validate_grammar_with_warnings(grammar, BYTES)
        if is_wrong:
            raise GrammarError(to_reason(said[0]), name)


def write(value: Any, schema: Schema, *, is_lenient: bool) -> str:
    """Write a value as JSON that the grammar of its schema takes, and takes as whole."""
    text = json.dumps(value, ensure_ascii=False)
    matcher = LLMatcher(BYTES, _compile(schema, is_lenient=is_lenient))
    tokens = BYTES.tokenize_str(text)
    assert matcher.try_consume_tokens(tokens) == len(tokens), text
    assert matcher.is_accepting(), text
    return text


def _grammars(constraint: Constraint, tools: Tools) -> Iterable[tuple[str, str | None]]:
    if constraint.schema is not None:
        yield _compile(constraint.schema, is_lenient=constraint.is_lenient), None
    for name, schema in to_functions(tools).items():
        if name in constraint.may_call:
            yield _compile(schema, is_lenient=name in constraint.lenient), name


def _compile(schema: Schema, *, is_lenient: bool) -> str:
    return str(LLMatcher.grammar_from_json_schema(to_held(schema, is_lenient=is_lenient)))


def _choices(schema: Schema) -> Iterator[Schema]:
    return (choice for key in CHOICES for choice in schema.get(key, []) if choice.get("type") != "null")


def _kind(schema: Schema) -> str:
    kind = schema.get("type", "object")
    return kind if isinstance(kind, str) else next(one for one in kind if one != "null")
