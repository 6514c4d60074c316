"""Tools: what the model is shown, what is skipped, and the names the client knows."""

import msgspec
import pytest

from engine.pieces import Finish
from engine.scripted import call, stop
from handlers.mapping.to_struct import FieldError
from handlers.mapping.to_tools import ToolName, UnknownChoiceError, to_input, to_toolbox
from handlers.wire.request import CreateResponse
from tests.doubles import say

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "$defs": {}}, "strict": True}
TIME = {"type": "function", "name": "time", "description": None, "parameters": None}
SPACE = {"type": "namespace", "name": "clock", "description": "", "tools": [TIME, {"type": "mcp"}]}
SAY = {"type": "custom", "name": "say"}
ALL = ["weather", "clock__time", "say"]


def allow(*names, **more):
    return {"type": "allowed_tools", "tools": [{"type": "function", "name": name} for name in names], **more}


def toolbox(*tools, choice=None):
    return to_toolbox(msgspec.convert({"tools": list(tools), "tool_choice": choice}, CreateResponse))


def names(*tools, choice=None):
    return [tool[tool["type"]]["name"] for tool in toolbox(*tools, choice=choice).tools]


def test_a_function_keeps_its_whole_schema():
    assert toolbox(WEATHER).tools == [
        {"type": "function", "function": {"name": "weather", "description": "",
                                          "parameters": {"type": "object", "$defs": {}}}},
    ]  # fmt: skip


def test_a_tool_without_parameters_takes_none():
    assert toolbox(TIME).tools == [
        {"type": "function", "function": {"name": "time", "description": "",
                                          "parameters": {"type": "object", "properties": {}}}},
    ]  # fmt: skip


def test_tools_of_other_types_are_skipped():
    assert names({"type": "web_search", "external_web_access": False}, WEATHER, {"type": "mcp"}) == ["weather"]


def test_a_free_form_tool_is_offered_with_its_grammar():
    lark = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}

    box = toolbox({"type": "custom", "name": "patch", "format": lark}, {"type": "custom", "name": "say"})

    assert box.tools == [
        {"type": "custom", "custom": {"name": "patch", "description": "",
                                      "format": {"grammar": {"syntax": "lark", "definition": "start: /a/"}}}},
        {"type": "custom", "custom": {"name": "say", "description": ""}},
    ]  # fmt: skip
    assert box.restore("patch") == ToolName("patch", None, is_custom=True)


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "json"}, "tools[0].format.type"),
        ({"type": "grammar", "syntax": "gbnf", "definition": "root ::= x"}, "tools[0].format.syntax"),
        ({"type": "grammar", "syntax": "lark"}, "tools[0].format.definition"),
    ],
)
def test_a_format_that_no_free_form_tool_has_is_named_by_its_path(form, param):
    with pytest.raises(FieldError) as caught:
        toolbox({"type": "custom", "name": "patch", "format": form})

    assert caught.value.param == param


def test_a_namespace_is_flattened_and_restored():
    box = toolbox(SPACE, WEATHER)

    assert [tool["function"]["name"] for tool in box.tools] == ["clock__time", "weather"]
    assert box.restore("clock__time") == ToolName("time", "clock")
    assert box.restore("weather") == ToolName("weather", None)
    assert box.restore("made__up") == ToolName("made__up", None)


@pytest.mark.parametrize(
    ("choice", "may_call", "must_call"),
    [
        (None, ALL, False),
        ("auto", ALL, False),
        ("required", ALL, True),
        ({"type": "function", "name": "weather"}, ["weather"], True),
        ({"type": "function", "name": "time", "namespace": "clock"}, ["clock__time"], True),
        ({"type": "custom", "name": "say"}, ["say"], True),
        (allow("weather"), ["weather"], False),
        (allow("weather", mode="required"), ["weather"], True),
    ],
)
def test_the_choice_says_what_may_be_called_and_all_is_shown(choice, may_call, must_call):
    box = toolbox(WEATHER, SPACE, SAY, choice=choice)

    assert (list(box.may_call), box.must_call) == (may_call, must_call)
    assert names(WEATHER, SPACE, SAY, choice=choice) == ALL


@pytest.mark.parametrize(
    "choice", ["none", allow("weather", mode="none"), {"type": "allowed_tools", "tools": [{"type": "web_search"}]}]
)
def test_a_choice_of_none_shows_none(choice):
    assert toolbox(WEATHER, SPACE, choice=choice).tools == []


@pytest.mark.parametrize("choice", ["required", {"type": "allowed_tools", "mode": "required", "tools": []}])
def test_a_call_cannot_be_required_where_there_is_no_tool(choice):
    with pytest.raises(FieldError) as caught:
        toolbox(*([] if choice == "required" else [WEATHER]), choice=choice)

    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("mode", ["any", ""])
def test_an_unknown_mode_is_named_by_its_path(mode):
    with pytest.raises(FieldError) as caught:
        toolbox(WEATHER, choice=allow("weather", mode=mode))

    assert caught.value.param == "tool_choice.mode"


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_choice_names_a_tool_by_its_own_type(kind):
    with pytest.raises(UnknownChoiceError):
        toolbox(WEATHER, SAY, choice={"type": kind, "name": "say" if kind == "function" else "weather"})


@pytest.mark.parametrize(
    ("arguments", "given"),
    [('{"input": "a\\nb"}', "a\nb"), ('{"input": 1}', '{"input": 1}'), ("not JSON", "not JSON"), ("{}", "{}")],
)
def test_the_input_of_a_free_form_tool_is_what_it_is_called_with(arguments, given):
    assert to_input(arguments) == given


def test_a_choice_of_a_tool_that_is_not_there_is_unknown():
    with pytest.raises(UnknownChoiceError):
        toolbox(WEATHER, choice={"type": "function", "name": "time"})


async def test_a_call_and_its_output_are_one_conversation(client, engine):
    engine.script = call("clock__time", {"zone": "CET"}, "call_1") + stop()
    first = await client.post(input="What time is it?", tools=[SPACE, WEATHER])
    engine.script = say("Noon.")

    second = await client.post(
        input=[
            {"type": "function_call", "call_id": "call_1", "name": "time", "namespace": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
            {"role": "user", "content": "In a word."},
        ],
        tools=[SPACE, WEATHER],
        previous_response_id=first.json["id"],
    )

    made = first.json["output"][0]
    assert (made["name"], made["namespace"], made["call_id"]) == ("time", "clock", "call_1")
    assert second.status_code == 200
    assert [tool["function"]["name"] for tool in engine.tools_templated[-1]] == ["clock__time", "weather"]
    assert engine.conversations[-1] == [
        {"role": "user", "content": "What time is it?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "clock__time", "arguments": {"zone": "CET"}}}
            ],
        },
        {"role": "tool", "content": "12:00", "tool_call_id": "call_1"},
        {"role": "user", "content": "In a word."},
    ]


async def test_outputs_are_put_in_the_order_of_their_calls(client, engine):
    engine.script = call("weather", "{}", "call_1") + call("weather", "{}", "call_2") + stop()
    first = await client.post(input="Weather?", tools=[WEATHER])
    engine.script = say("Rain.")
    outputs = [{"type": "function_call_output", "call_id": name, "output": name} for name in ("call_2", "call_1")]

    reply = await client.post(input=outputs, tools=[WEATHER], previous_response_id=first.json["id"])

    assert reply.status_code == 200
    assert [m["content"] for m in engine.conversations[-1] if m["role"] == "tool"] == ["call_1", "call_2"]


async def test_a_plain_turn_follows_once_all_calls_are_answered(client, engine):
    engine.script = call("weather", "{}", "call_1") + stop()
    first = await client.post(input="Weather?", tools=[WEATHER])
    engine.script = say("Rain.")
    answered = await client.post(
        input=[{"type": "function_call_output", "call_id": "call_1", "output": "Rain"}],
        previous_response_id=first.json["id"],
    )

    reply = await client.post(input="Thanks.", previous_response_id=answered.json["id"])

    assert reply.status_code == 200


async def test_without_parallel_calls_one_is_shown(client, engine):
    engine.script = call("weather", "{}", "call_1") + call("weather", "{}", "call_2") + stop()

    reply = await client.post(input="Weather?", tools=[WEATHER], parallel_tool_calls=False)

    assert [item["call_id"] for item in reply.json["output"]] == ["call_1"]


async def test_reasoning_tokens_are_counted(client, engine):
    engine.script = [*stop(reasoning_tokens=3)]
    assert isinstance(engine.script[-1], Finish)

    reply = await client.post(input="Hello")

    assert reply.json["usage"]["output_tokens_details"]["reasoning_tokens"] == 3
