"""The public acceptance tests over HTTP, against a live server: with a scripted model, and where it can a real one."""

import pytest

from tests.acceptance.requests import A_FILE, ANSWERED, COUNTING, FORECAST, WEATHER, say
from tests.openapi import wire


@pytest.mark.parametrize("name", ANSWERED)
def test_a_conversation_is_answered(asked, name):
    answer = asked.ask(input=ANSWERED[name])

    assert answer["status"] == "completed"
    assert answer["output"]


def test_streaming_response(asked):
    events = asked.stream(input=COUNTING)

    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["status"] == "completed"
    assert events[-1]["response"]["output"]


def test_file_input(sensible):
    answer = sensible.ask(input=A_FILE)

    assert answer["status"] == "completed"
    assert answer["output"][-1]["content"][0]["text"] == "Hello to you."


def test_previous_response_id(sensible):
    first = sensible.ask(input=[say("user", "The code word is heron.")])

    second = sensible.ask(input=[say("user", "What was the code word?")], previous_response_id=first["id"])

    assert second["status"] == "completed"
    assert second["output"][-1]["content"][0]["text"] == "The code word is heron."


def test_tool_calling(sensible):
    answer = sensible.ask(input=FORECAST, tools=[WEATHER])

    assert [item["type"] for item in answer["output"]] == ["reasoning", "function_call"]


def test_tool_calling_streaming(sensible):
    events = sensible.stream(input=FORECAST, tools=[WEATHER])

    calls = [event for event in events if event.get("item", {}).get("type") == "function_call"]
    assert [event["type"] for event in calls] == ["response.output_item.added", "response.output_item.done"]
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= {
        event["type"] for event in events
    }


def test_function_call_roundtrip(sensible):
    forced = {"type": "function", "name": "get_weather"}
    asked = sensible.ask(input=FORECAST, tools=[WEATHER], tool_choice=forced)
    call = asked["output"][-1]

    told = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"}
    answer = sensible.ask(input=[told], tools=[WEATHER], previous_response_id=asked["id"])

    assert answer["status"] == "completed"
    assert answer["output"][-1]["content"][0]["text"] == "It says: Rain"


def test_an_output_message_may_have_a_phase(sensible):
    answer = sensible.ask(input="Say hello.")

    wire.check_response({**answer, "output": [{**answer["output"][0], "phase": "final_answer"}]})
