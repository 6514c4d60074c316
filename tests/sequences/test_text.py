"""Streams of plain text, however they end."""

import pytest

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import call, stop, think
from tests.doubles import say
from tests.sequences.laws import assert_laws, to_events

SCENARIOS = {
    "plain_text": say("The", " capital", " of France is Paris."),
    "length_stop": say("The", " capital", reason="length"),
    "empty_output": say(),
    "empty_output_at_the_limit": say(reason="length"),
    "unicode_split_over_tokens": say("Grüße ", "", "", "🦊", "", "你", "好"),
    "failure_before_the_first_token": [DecodeError("out of memory")],
    "failure_after_the_first_token": [Text("The"), Text(" cap"), DecodeError("out of memory")],
    "failure_while_reasoning": [*think("Hm", "m"), DecodeError("out of memory")],
    "failure_after_reasoning": [*think("Hm."), Text("The"), DecodeError("out of memory")],
    "engine_ends_without_saying_why": [Text("The")],
    "model_ends_with_an_error": [Text("The"), *stop("error")],
    "reasoning_then_text": think("Look", " it up.") + say("Paris", "."),
    "reasoning_only": think("Hm.") + stop(),
    "reasoning_cut": think("Hm", "m") + stop("length"),
    "text_reasoning_text": [Text("First."), *think("Then?"), Text("Second."), *stop()],
    "text_then_two_calls": [
        Text("I look."),
        *call("weather", {"city": "Oslo"}, "call_9"),
        *call("time", "{}"),
        *stop(),
    ],
    "one_call": call("weather", {"city": "Oslo"}) + stop(),
    "reasoning_then_a_call": think("Look it up.") + call("weather", {"city": "Oslo"}) + stop(),
    "a_call_cut_by_the_limit": [Text("I look."), *call("weather", "{}"), *stop("length")],
    "a_call_of_a_failed_turn": [Text("I look."), *call("weather", "{}"), DecodeError("broken")],
    "a_call_of_a_turn_that_ends_with_an_error": [Text("I look."), *call("weather", "{}"), *stop("error")],
    "step_crashes_midway": [Text("The"), ZeroDivisionError()],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_stream(client, engine, sse, scenario):
    engine.script = SCENARIOS[scenario]

    reply = await client.post(input="What is the capital of France?", stream=True)

    assert reply.status_code == 200
    assert_laws(to_events(reply.text))
    assert all(chunk.endswith(b"\n\n") for chunk in reply.chunks)
    assert reply.text == sse


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_json_is_the_same_stream_drained(client, engine, services, scenario):
    engine.script = SCENARIOS[scenario]
    streamed = await client.post(input="Hello", stream=True, store=False)
    terminal = to_events(streamed.text)[-1]["response"]

    whole = await client.post(input="Hello", stream=False, store=False)

    if terminal["status"] == "failed":
        assert whole.status_code == 500
        assert whole.json["error"]["code"] == terminal["error"]["code"]
    else:
        assert whole.status_code == 200
        assert _unnumbered(whole.json) == _unnumbered(terminal)


@pytest.mark.parametrize(
    ("script", "tokens"), [([Text("The"), *stop("error", prompt_tokens=7)], 7), ([Text("The")], None)]
)
async def test_a_failure_tells_what_was_used_if_the_model_said_so(client, engine, script, tokens):
    engine.script = script

    reply = await client.post(input="Hello", stream=True)

    usage = to_events(reply.text)[-1]["response"]["usage"]
    assert (usage and usage["input_tokens"]) == tokens


async def test_a_chained_turn(client, engine, sse):
    engine.script = say("Noted.")
    first = await client.post(input="The code word is heron.", instructions="Be brief.")
    engine.script = say("Heron.")

    second = await client.post(input="Which word?", previous_response_id=first.json["id"], stream=True)

    assert engine.conversations[-1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The code word is heron."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Which word?"},
    ]
    assert second.headers["X-Session-Cache"] == "cold_replay"
    assert_laws(to_events(second.text))
    assert second.text == sse


def _unnumbered(response: dict) -> dict:
    text = str(response)
    for item in response["output"]:
        text = text.replace(item["id"], "item").replace(item.get("call_id", item["id"]), "call")
    return text.replace(response["id"], "resp")
