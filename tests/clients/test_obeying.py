"""The scripted model obeys what it is held to, and the grammar that it is checked by is the product's."""

import json

import jsonschema_rs
import pytest

from engine.pieces import Constraint, Sampling, ToolCall
from tests.clients.obeying import Told, write
from tests.clients.sensible import SensibleEngine

TASK = "Ada, aged 36, and Bo, aged 7, live in Oslo; they are a family."
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": ["string", "null"]}},
    "required": ["name", "age", "city"],
}
SCHEMAS = {
    "plain": (PERSON, {"name": "Ada", "age": 36, "city": "Oslo"}),
    "reference": (
        {"type": "object", "properties": {"who": {"$ref": "#/$defs/P"}}, "required": ["who"], "$defs": {"P": PERSON}},
        {"who": {"name": "Ada", "age": 36, "city": "Oslo"}},
    ),
    "several": (
        {"type": "object", "properties": {"people": {"type": "array", "items": PERSON, "minItems": 2}}},
        {"people": [{"name": "Ada", "age": 36, "city": "Oslo"}, {"name": "Bo", "age": 7, "city": "Oslo"}]},
    ),
    "choices": (
        {
            "type": "object",
            "properties": {
                "kind": {"enum": ["club", "family"]}, "is_one": {"type": "boolean"}, "version": {"const": 2},
                "share": {"anyOf": [{"type": "null"}, {"type": "number"}]}, "nothing": {"type": "null"},
            },
        },
        {"kind": "family", "is_one": True, "version": 2, "share": 36.0, "nothing": None},
    ),
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "note", "parameters": PERSON}},
    {"type": "custom", "custom": {"name": "say"}},
]


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_it_was_told_fills_a_schema(name):
    schema, filled = SCHEMAS[name]

    text = write(Told(TASK).fill(schema, schema), schema, is_lenient=False)

    assert json.loads(text) == filled
    jsonschema_rs.validate(schema, filled)


@pytest.mark.parametrize("value", [{"name": "Ada"}, {"name": "Ada", "age": "36", "city": None}, {}, []])
def test_what_breaks_the_schema_is_a_fault(value):
    with pytest.raises(AssertionError):
        write(value, PERSON, is_lenient=False)


async def pieces(constraint, tools):
    engine = SensibleEngine()
    prompt = await engine.tokenize([{"role": "user", "content": TASK}], tools)
    grammar = await engine.constrain(prompt, constraint, tools)
    sampling = Sampling(temperature=1, top_p=1, max_tokens=99)
    return [piece async for piece in engine.decode(prompt, sampling, tools, grammar=grammar)]


@pytest.mark.parametrize(
    ("may_call", "called"),
    [(("note",), "note"), (("get_time", "note", "say"), "get_time"), (("say",), "say")],
)
async def test_a_call_that_is_required_is_made_and_no_other_tool_is_called(may_call, called):
    made = await pieces(Constraint(may_call=may_call, must_call=True), TOOLS)

    assert [piece.name for piece in made if isinstance(piece, ToolCall)] == [called]


async def test_without_a_call_the_answer_is_of_the_schema():
    said = await pieces(Constraint(schema=PERSON, may_call=("get_time",)), TOOLS)

    assert "".join(piece.text for piece in said[:-1]) == '{"name": "Ada", "age": 36, "city": "Oslo"}'
