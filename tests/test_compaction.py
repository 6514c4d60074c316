"""POST /v1/responses/compact: a conversation made short, and taken again in its place."""

import base64
import json

import pytest

from engine.errors import DecodeError
from engine.scripted import call, stop, think
from handlers.mapping.compaction import ASK, LEAD, MARK
from tests.doubles import MODEL, say

ITEMS = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": [{"type": "input_text", "text": "Count."}]},
]


def compact(client, **body):
    return client.request("POST", "/v1/responses/compact", json.dumps({"model": MODEL, **body}).encode())


@pytest.fixture(autouse=True)
def script(engine):
    engine.script = think("Hm.") + say("Ada wants", " a count.", prompt_tokens=9)


async def test_the_window_is_what_the_user_said_and_a_summary(client, engine):
    reply = await compact(client, input=ITEMS, prompt_cache_key="key")

    *said, summary = reply.json["output"]
    assert (reply.status_code, reply.json["object"]) == (200, "response.compaction")
    assert reply.json["usage"]["input_tokens"] == 9
    assert [item["content"][0]["text"] for item in said] == ["My name is Ada.", "Count."]
    assert all({"id", "type", "role", "status", "content"} <= item.keys() for item in said)
    assert (summary["type"], summary.keys()) == ("compaction", {"type", "id", "encrypted_content"})
    assert engine.conversations[-1][-1] == {"role": "user", "content": ASK}


async def test_the_window_is_taken_as_input(client, engine):
    window = (await compact(client, input=ITEMS)).json["output"]

    reply = await client.post(input=[*window, {"role": "user", "content": "Go on."}])

    assert reply.json["status"] == "completed"
    leading, *turns = engine.conversations[-1]
    assert leading["content"] == LEAD + "Ada wants a count."
    assert [turn["content"] for turn in turns] == ["My name is Ada.", "Count.", "Go on."]


async def test_a_stored_chain_can_be_compacted_and_what_came_of_it_continued(client, engine):
    await client.post(input=ITEMS)

    window = (await compact(client, previous_response_id="resp_1")).json["output"]
    first = await client.post(input=window)
    second = await client.post(input="And?", previous_response_id=first.json["id"])

    assert [item["type"] for item in window] == ["message", "message", "compaction"]
    assert second.json["status"] == "completed"
    assert engine.conversations[-1][0]["content"].startswith(LEAD)


async def test_the_compaction_of_a_compacted_window_sees_the_summary(client, engine):
    window = (await compact(client, input=ITEMS)).json["output"]

    again = (await compact(client, input=window)).json["output"]

    assert engine.conversations[-1][0]["content"] == LEAD + "Ada wants a count."
    assert [item["type"] for item in again] == ["message", "message", "compaction"]


async def test_it_is_stored_nowhere_and_calls_no_tool(client, engine):
    tools = [{"type": "function", "name": "look", "parameters": {}}]
    reply = await compact(
        client, input=ITEMS, tools=tools, tool_choice="required", store=True, stream=True, background=True,
        text={"format": {"type": "json_object"}}, stop=["a"],
    )  # fmt: skip

    assert reply.json["object"] == "response.compaction"
    assert engine.tools_decoded == [None]
    assert engine.constraints == []
    assert (await client.request("GET", f"/v1/responses/{reply.json['id']}")).status_code == 404


async def test_a_model_that_breaks_is_a_500(client, engine):
    engine.script = [DecodeError("broken")]

    reply = await compact(client, input=ITEMS)

    assert (reply.status_code, reply.json["error"]["code"]) == (500, "server_error")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [({"model": None}, 400, "model"), ({}, 400, "input"), ({"previous_response_id": "resp_x"}, 404, None)],
)
async def test_what_cannot_be_compacted_is_refused(client, body, status, param):
    reply = await compact(client, **body)

    assert reply.status_code == status
    assert param is None or reply.json["error"]["param"] == param


def encoded(text):
    return MARK + base64.urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "content", [None, 5, "", "gAAAA", MARK + "!", MARK + "\u00fc", encoded(b"{}"), encoded(b"\xff"), MARK + "YQ"]
)
async def test_what_this_server_did_not_make_is_a_400_that_names_it(client, engine, content):
    item = {"type": "compaction", "encrypted_content": content}

    reply = await client.post(input=[{"role": "user", "content": "Hi"}, item])

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "input[1].encrypted_content")
    assert engine.decodes == []


async def test_calls_that_were_answered_are_part_of_what_is_summed_up(client, engine):
    engine.script = call("look", {}, "call_1") + stop()
    tools = [{"type": "function", "name": "look", "parameters": {}}]
    await client.post(input="Look.", tools=tools)
    engine.script = say("It was looked.")
    answer = {"type": "function_call_output", "call_id": "call_1", "output": "A heron."}

    reply = await compact(client, input=[answer], previous_response_id="resp_1")

    assert [item["type"] for item in reply.json["output"]] == ["message", "compaction"]
    assert "A heron." in [turn["content"] for turn in engine.conversations[-1]]
