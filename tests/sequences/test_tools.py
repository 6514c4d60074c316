"""Streams of calls, of functions and of free-form tools, and what the model was held to for them."""

import asyncio

import pytest

from engine.pieces import Text
from engine.scripted import call, stop, think
from machines.output import Item
from tests.doubles import say
from tests.sequences.laws import assert_laws, to_events

LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /[a-z]+/'}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Patch a file.", "format": LARK}
NOTE = {"type": "namespace", "name": "pad", "tools": [{"type": "custom", "name": "note"}]}
TOOLS = [WEATHER, PATCH, NOTE]
A_PATCH = call("patch", {"input": '+a "b"\n'})

SCENARIOS = {
    "a_free_form_call": A_PATCH + stop(),
    "a_free_form_call_without_input": call("patch", {"input": ""}) + stop(),
    "text_then_free_form_calls": [Text("Here."), *A_PATCH, *call("pad__note", {"input": "Done."}, "call_9"), *stop()],
    "reasoning_then_a_free_form_call": think("Hm.") + A_PATCH + stop(),
    "calls_of_both_kinds": call("weather", {}) + A_PATCH + call("weather", {"city": "Oslo"}) + stop(),
    "a_free_form_call_cut_by_the_limit": [Text("Here."), *A_PATCH, *stop("length")],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_stream(client, engine, sse, scenario):
    engine.script = SCENARIOS[scenario]

    reply = await client.post(input="Patch it.", tools=TOOLS, stream=True)

    assert_laws(to_events(reply.text))
    assert reply.text == sse


async def test_a_required_call(client, engine, sse):
    engine.script = call("weather", {"city": "Oslo"}) + stop()

    reply = await client.post(input="Weather?", tools=TOOLS, tool_choice="required", stream=True)

    constraint = engine.constraints[-1][1]
    assert (constraint.may_call, constraint.must_call) == (("weather", "patch", "pad__note"), True)
    assert engine.grammars_decoded[-1].constraint is constraint
    assert_laws(to_events(reply.text))
    assert reply.text == sse


async def test_an_answer_of_a_schema_echoes_its_format(client, engine, sse):
    engine.script = say('{"n": ', "1}")
    form = {"type": "json_schema", "name": "count", "schema": {"type": "object"}, "strict": True}

    reply = await client.post(input="How many?", text={"format": form}, instructions="Be brief.", stream=True)

    assert engine.constraints[-1][1].schema == {"type": "object"}
    assert engine.conversations[-1][0]["content"].startswith("Be brief.\n\nAnswer with JSON of this schema")
    assert to_events(reply.text)[-1]["response"]["instructions"] == "Be brief."
    assert_laws(to_events(reply.text))
    assert reply.text == sse


async def test_all_tools_stay_in_the_prompt_whatever_the_choice(client, engine):
    choices = ["auto", "required", {"type": "custom", "name": "patch"},
               {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]}]  # fmt: skip
    engine.script = say("Hi")
    for choice in choices:
        await client.post(input="Hi", tools=TOOLS, tool_choice=choice)

    assert engine.tools_templated == [engine.tools_templated[0]] * len(choices)
    assert [constraint.may_call for _, constraint, _ in engine.constraints[2:]] == [("patch",), ("weather",)]


async def test_an_allowed_choice_is_echoed_with_its_mode(client, engine):
    engine.script = say("Hi")
    tools = [{"type": "function", "name": "weather"}]

    reply = await client.post(input="Hi", tools=TOOLS, tool_choice={"type": "allowed_tools", "tools": tools})

    assert reply.json["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": tools}


async def test_a_free_form_call_is_answered_on_the_stored_chain(client, engine):
    engine.script = A_PATCH + stop()
    first = await client.post(input="Patch it.", tools=TOOLS)
    made = first.json["output"][0]
    engine.script = say("Done.")

    unanswered = await client.post(input="And?", tools=TOOLS, previous_response_id=first.json["id"])
    answered = await client.post(
        input=[made, {"type": "custom_tool_call_output", "call_id": made["call_id"], "output": "ok"}],
        tools=TOOLS,
        previous_response_id=first.json["id"],
    )

    assert (made["type"], made["name"], made["input"]) == ("custom_tool_call", "patch", '+a "b"\n')
    assert (unanswered.status_code, made["call_id"] in unanswered.json["error"]["message"]) == (400, True)
    assert answered.status_code == 200
    assert engine.conversations[-1][1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": made["call_id"],
                    "type": "function",
                    "function": {"name": "patch", "arguments": {"input": '+a "b"\n'}},
                }
            ],
        },
        {"role": "tool", "content": "ok", "tool_call_id": made["call_id"]},
    ]


async def test_a_free_form_call_that_was_being_shown_is_closed(client, engine, ended):
    engine.script = A_PATCH * 60 + stop()
    reading = client.start(input="Patch it.", tools=TOOLS, stream=True)
    reading.unread = asyncio.Semaphore(2)
    await reading.seen("response.in_progress")
    for _ in range(500):
        await asyncio.sleep(0)

    client.app.begin_drain(0)
    for _ in range(200):
        reading.unread.release()
    await reading.reply()

    events = to_events(reading.text)
    assert_laws(events)
    assert events[-1]["type"] == "response.failed"
    assert ended[-1].output.trace[-1].source is Item.CUSTOM_CALL
