"""What a response says of the request it answers."""

import pytest

from tests.doubles import say
from tests.sequences.laws import to_events


async def test_the_effort_of_reasoning_is_taken_and_echoed(client, engine):
    engine.script = say("Hi")

    reply = await client.post(input="Hello", reasoning={"effort": "low"})

    assert (reply.status_code, reply.json["reasoning"]) == (200, {"effort": "low", "summary": None})


FUNCTION = {"type": "function", "name": "time"}
WHOLE = {**FUNCTION, "description": None, "parameters": None, "strict": None}
SAY = {"type": "custom", "name": "say"}
SPACE = {"type": "namespace", "name": "clock"}
OFFERED = [
    ([FUNCTION], [WHOLE]),
    ([{**FUNCTION, "strict": True, "defer_loading": "yes"}], [{**WHOLE, "strict": True}]),
    ([{**SAY, "description": None, "format": None, "async": 1}], [SAY]),
    ([{**SAY, "format": {"type": "text"}}], [{**SAY, "format": {"type": "text"}}]),
    ([SPACE], [{**SPACE, "description": "", "tools": []}]),
    ([{**SPACE, "description": None, "tools": [FUNCTION]}], [{**SPACE, "description": "", "tools": [WHOLE]}]),
    ([{**SPACE, "description": "Time.", "tools": [SAY]}], [{**SPACE, "description": "Time.", "tools": [SAY]}]),
    ([{"type": "web_search", "filters": 1}, {"type": "wonder"}, FUNCTION], [WHOLE]),
    ([{**SPACE, "description": "", "tools": [SPACE, {"type": "mcp"}, SAY]}],
     [{**SPACE, "description": "", "tools": [SAY]}]),
]  # fmt: skip


@pytest.mark.parametrize(("tools", "echo"), OFFERED)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_tools_that_the_model_was_offered_are_echoed_whole(client, engine, tools, echo, stream):
    """The client's strict types, to which each reply is held, take nothing less, and do not know every tool."""
    engine.script = say("Hi")

    reply = await client.post(input="Hello", tools=tools, stream=stream)

    told = to_events(reply.text)[-1]["response"] if stream else reply.json
    assert told["tools"] == echo
    assert (await client.request("GET", f"/v1/responses/{told['id']}")).json["tools"] == echo


@pytest.mark.parametrize("mode", [None, "auto", "required", "none"])
async def test_allowed_tools_are_echoed_with_a_mode_or_as_none(client, engine, mode):
    engine.script = say("Hi")
    choice = {"type": "allowed_tools", "tools": [FUNCTION], **({"mode": mode} if mode else {})}

    reply = await client.post(input="Hello", tools=[FUNCTION], tool_choice=choice)

    assert reply.json["tool_choice"] == ("none" if mode == "none" else {**choice, "mode": mode or "auto"})


@pytest.mark.parametrize(
    ("given", "echo"),
    [
        ({"topic": "herons", "é": ""}, {"topic": "herons", "é": ""}),
        ({"retention_seconds": 60, "draft": True}, {"retention_seconds": "60", "draft": "true"}),
        (
            {"share": 0.5, "tags": ["a", "ü"], "who": {"id": 1}},
            {"share": "0.5", "tags": '["a","ü"]', "who": '{"id":1}'},
        ),
        ({"nothing": None}, {}),
        (None, {}),
        (["a"], {}),
        ("a", {}),
    ],
)
async def test_metadata_is_echoed_as_strings(client, engine, given, echo):
    engine.script = say("Hi")

    reply = await client.post(input="Hello", metadata=given)

    assert (reply.status_code, reply.json["metadata"]) == (200, echo)
    assert (await client.request("GET", f"/v1/responses/{reply.json['id']}")).json["metadata"] == echo
