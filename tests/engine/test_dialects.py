"""Calls as each family writes them: allowed by our grammar, and read by mlx-lm's own parser."""

import importlib
import json

import mlx.core as mx
import pytest
from mlx_lm import tool_parsers
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper

from engine.dialects import DIALECTS
from engine.grammar import Compiler
from engine.markers import Markers
from engine.pieces import Constraint, ToolCall
from tests.engine.tiny import END, START, make_fast_tokenizer

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"$ref": "#/$defs/days"},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city", "days"],
    "$defs": {"days": {"type": "integer"}},
}
FLAT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "days"],
}
OSLO = {"city": "Oslo", "days": 3}
LONG = {"city": 'Oslo\n"in" Norway, <b>', "days": -3, "unit": "f"}
HEAD = "<|tool_calls_section_begin|><|tool_call_begin|>functions."
XTML = '<|open|>tools<|sep|><|open|>call tool="{}" index="1"<|sep|><|open|>json type="object"<|sep|>{}'
XTML_END = "<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
HERMES = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'

# ruff: noqa: ISC004 - a call may be longer than a line
# fmt: off
# parser, text, its calls
CASES = [
    ("json_tools", HERMES.format("weather", json.dumps(OSLO)), [OSLO]),
    ("json_tools", HERMES.format("weather", json.dumps(LONG)), [LONG]),
    ("json_tools", HERMES.format("weather", json.dumps(OSLO)) + "\n" + HERMES.format("time", "{}"), [OSLO, {}]),
    ("mistral", "[TOOL_CALLS]weather[ARGS]" + json.dumps(LONG), [LONG]),
    ("mistral", "[TOOL_CALLS]weather[ARGS]" + json.dumps(OSLO) + "[TOOL_CALLS]time[ARGS]{}", [OSLO, {}]),
    ("kimi_k2", HEAD + "weather:0<|tool_call_argument_begin|>" + json.dumps(LONG) + "<|tool_call_end|>"
        "<|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [LONG, {}]),
    ("kimi_k3", XTML.format("weather", json.dumps(LONG)) + XTML_END, [LONG]),
    ("qwen3_coder", '<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n"in" Norway, <b>\n</parameter>\n'
        "<parameter=days>\n-3\n</parameter>\n<parameter=unit>\nf\n</parameter>\n</function>\n</tool_call>", [LONG]),
    ("qwen3_coder", "<tool_call>\n<function=time>\n</function>\n</tool_call>", [{}]),
    ("glm47", '<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo\n"in" Norway, <b></arg_value><arg_key>days'
        "</arg_key><arg_value>-3</arg_value><arg_key>unit</arg_key><arg_value>f</arg_value></tool_call>", [LONG]),
    ("glm47", "<tool_call>time</tool_call>", [{}]),
    ("laguna", "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>", [OSLO]),
    ("longcat", "<longcat_tool_call>weather<longcat_arg_key>city</longcat_arg_key><longcat_arg_value>Oslo"
        "</longcat_arg_value><longcat_arg_key>days</longcat_arg_key><longcat_arg_value>3</longcat_arg_value>"
        "</longcat_tool_call>", [OSLO]),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="time">\n</invoke>\n</minimax:tool_call>',
        [OSLO, {}]),
    ("minicpm5", '<function name="weather"><param name="city">Oslo</param><param name="days">3</param></function>',
        [OSLO]),
    ("pythonic", '<|tool_call_start|>[weather(city="Oslo\\n\\"in\\" Norway, <b>", days=-3, unit="f"), time()]'
        "<|tool_call_end|>", [LONG, {}]),
    ("function_gemma", "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:3}<end_function_call>",
        [OSLO]),
    ("gemma4", '<|tool_call>call:weather{city:<|"|>Oslo\n"in" Norway, <b><|"|>,days:-3,unit:<|"|>f<|"|>}<tool_call|>',
        [LONG]),
]
SPECIAL = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", "<|open|>", "<|close|>",
    "<|sep|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</parameter>", "<minimax:tool_call>",
    "</minimax:tool_call>", "<|tool_call_start|>", "<start_function_call>", "<end_function_call>", "<escape>",
    "<|tool_call>", "<tool_call|>", '<|"|>',
]
# fmt: on


def function(name, parameters):
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def make(parser, markers):
    module = importlib.import_module(f"{tool_parsers.__name__}.{parser}")
    return TokenizerWrapper(
        make_fast_tokenizer(markers=markers),
        BPEStreamingDetokenizer,
        eos_token_ids=[END],
        tool_call_start=module.tool_call_start,
        tool_call_end=module.tool_call_end,
        tool_parser=module.parse_tool_call,
    )


def tools_of(parser):
    time = [] if parser == "longcat" else [function("time", {"type": "object", "properties": {}})]
    return [function("weather", FLAT if "gemma" in parser else WEATHER), *time]


def is_allowed(tokenizer, text, tools, **constraint):
    return is_walked(tokenizer, tokenizer.encode(text, add_special_tokens=False), tools, **constraint)


def is_walked(tokenizer, answer, tools, **constraint):
    names = tuple(tool["function"]["name"] for tool in tools)
    grammar = Compiler(tokenizer).compile([START], Constraint(may_call=names, **constraint), tools)
    processor, tokens = grammar.processor(), [START]
    for token in [*answer, END]:
        logits = processor(mx.array(tokens), mx.zeros((1, len(tokenizer))))
        if logits[0, token].item() != 0:
            return False
        tokens.append(token)
    return True


def test_every_dialect_has_a_case():
    assert {parser for parser, _, _ in CASES} == set(DIALECTS)


@pytest.mark.parametrize("markers", [(), SPECIAL], ids=["in text", "special tokens"])
@pytest.mark.parametrize(("parser", "text", "arguments"), CASES)
def test_calls_are_allowed_and_read_back(parser, text, arguments, markers):
    tokenizer, tools = make(parser, markers), tools_of(parser)

    assert is_allowed(tokenizer, text, tools, must_call=True)
    assert is_allowed(tokenizer, f"Look: {text}", tools)
    assert not is_allowed(tokenizer, f"Look: {text}", tools, must_call=True)

    markers = Markers(tokenizer, [START], tools)
    pieces = [piece for character in text for piece in markers.read(character)] + markers.end("stop")
    calls = [piece for piece in pieces if isinstance(piece, ToolCall)]
    assert [call.name for call in calls] == ["weather", "time"][-len(arguments) :] or len(calls) == 1
    assert [json.loads(call.arguments) for call in calls] == arguments


@pytest.mark.parametrize("markers", [(), SPECIAL], ids=["in text", "special tokens"])
@pytest.mark.parametrize(("parser", "text", "arguments"), [case for case in CASES if case[2][0]])
def test_a_call_with_a_wrong_name_or_argument_is_not_allowed(parser, text, arguments, markers):
    tokenizer, tools = make(parser, markers), tools_of(parser)

    for bad in (text.replace("weather", "whether"), text.replace("3", "x"), text.replace("days", "nights")):
        assert not is_allowed(tokenizer, bad, tools, must_call=True)
        assert not is_allowed(tokenizer, bad, tools)


def test_a_marker_that_is_a_token_is_not_spelled_out_in_others():
    tokenizer, tools = make("glm47", SPECIAL), tools_of("glm47")
    spelled = [token for char in "So <tool_call>" for token in tokenizer.encode(char, add_special_tokens=False)]
    call = tokenizer.encode("<tool_call>time</tool_call>", add_special_tokens=False)

    assert is_walked(tokenizer, spelled[:-1], tools)
    assert not is_walked(tokenizer, spelled, tools)
    assert not is_walked(tokenizer, [*spelled, *call], tools)


@pytest.mark.parametrize("parser", ["kimi_k2", "minimax_m2", "pythonic", "json_tools", "mistral"])
def test_one_call_may_be_the_only_one(parser):
    text = next(text for name, text, arguments in CASES if name == parser and len(arguments) > 1)

    assert not is_allowed(make(parser, SPECIAL), text, tools_of(parser), must_call=True, only_one=True)


@pytest.mark.parametrize(
    ("parser", "parameters"),
    [
        ("muse_spark", WEATHER),  # no grammar of ours
        ("gemma4", WEATHER),  # has a list, which gemma4's parser reads in its own way
        ("longcat", {"type": "object", "properties": {}}),  # its parser reads no call without arguments
        ("pythonic", {"type": "object", "properties": {"a-b": {}}}),  # not a name in Python
    ],
)
def test_a_call_that_a_family_has_no_grammar_for_is_one_of_hermes(parser, parameters):
    tokenizer, tools = make(parser, ()), [function("weather", parameters)]
    text = HERMES.format("weather", json.dumps(OSLO if parameters is WEATHER else {}))

    assert is_allowed(tokenizer, text, tools, must_call=True)
    markers = Markers(tokenizer, [START], tools)
    pieces = [piece for character in text for piece in markers.read(character)] + markers.end("stop")
    assert [piece.name for piece in pieces if isinstance(piece, ToolCall)] == ["weather"]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "maxLength": 3}, "abc", "abcd"),
        ({"type": "string", "minLength": 2}, "ab", "a"),
        ({"enum": ["a", "b"]}, "b", "c"),
        ({"const": "a"}, "a", "b"),
        ({"type": "boolean"}, "true", "yes"),
        ({"type": ["integer", "null"]}, "null", "none"),
        ({"type": ["string", "null"], "maxLength": 1}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "some", None),
        ({"anyOf": [{"type": "array"}, {"type": "integer"}]}, "[1]", "some"),
        ({"enum": [1, 2]}, "2", "3"),
        (True, "anything", None),
    ],
)
def test_a_tagged_value_is_of_its_schema(schema, good, bad):
    tools = [function("f", {"type": "object", "properties": {"a": schema}, "required": ["a"]})]
    text = "<tool_call>f<arg_key>a</arg_key><arg_value>{}</arg_value></tool_call>"

    assert is_allowed(make("glm47", SPECIAL), text.format(good), tools, must_call=True)
    if bad:
        assert not is_allowed(make("glm47", SPECIAL), text.format(bad), tools, must_call=True)


@pytest.mark.parametrize(
    ("given", "is_good"),
    [("", True), ("a=1", True), ("b=2", True), ("a=1, b=2", True), ("a=1,b=2", False), (", b=2", False)],
)
def test_a_list_of_optional_arguments_has_commas_between_those_it_has(given, is_good):
    tools = [function("f", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})]
    text = f"<|tool_call_start|>[f({given})]<|tool_call_end|>"

    assert is_allowed(make("pythonic", SPECIAL), text, tools, must_call=True) is is_good
