"""Items that are named, not sent; parts a text model cannot see; items nobody here knows."""

import asyncio

import pytest

from engine.scripted import think
from handlers.settings import Settings
from tests.doubles import NOW, say

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
NOTE = "[An image was attached here, which this model cannot see.]"


async def test_a_reference_is_the_stored_item(client, engine):
    engine.script = think("Look it up.") + say("Paris.")
    first = await client.post(input="Capital of France?")
    references = [{"type": "item_reference", "id": item["id"]} for item in first.json["output"]]

    reply = await client.post(
        input=[{"role": "user", "content": "Hi"}, *references, {"role": "user", "content": "So?"}]
    )

    assert reply.status_code == 200
    assert engine.conversations[-1] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Paris.", "reasoning_content": "Look it up."},
        {"role": "user", "content": "So?"},
    ]


async def test_a_reference_needs_its_own_response_alone_and_not_what_that_continued(client, services, engine):
    engine.script = say("Paris.")
    first = await client.post(input="Capital of France?")
    second = await client.post(input="Sure?", previous_response_id=first.json["id"])
    assert await services.writes.settled(second.json["id"], 10)
    await services.store.delete(first.json["id"])

    reply = await client.post(input=[{"type": "item_reference", "id": second.json["output"][0]["id"]}])

    assert reply.status_code == 200
    assert engine.conversations[-1] == [{"role": "assistant", "content": "Paris."}]


async def test_a_reference_waits_for_the_write_of_its_response(client, services, engine):
    engine.script = say("Paris.")
    put, settled, waited_for = services.store.put, services.writes.settled, asyncio.Event()

    async def put_later(row):
        await waited_for.wait()
        await put(row)

    async def settle(*arguments):
        waited_for.set()
        return await settled(*arguments)

    services.store.put, services.writes.settled = put_later, settle
    first = await client.post(input="Capital of France?")

    reply = await client.post(input=[{"type": "item_reference", "id": first.json["output"][0]["id"]}])

    waited_for.set()
    assert reply.status_code == 200


async def test_a_reference_to_a_response_that_has_expired_is_a_404(client, services, engine):
    engine.script = say("Paris.")
    first = await client.post(input="Capital of France?")
    assert await services.writes.settled(first.json["id"], 10)
    services.clock = lambda: NOW + services.settings.retention_seconds

    reply = await client.post(input=[{"type": "item_reference", "id": first.json["output"][0]["id"]}])

    assert (reply.status_code, reply.json["error"]["code"]) == (404, "item_not_found")


@pytest.mark.parametrize("reference", [{}, {"id": 5}, {"id": None}])
async def test_a_reference_without_an_id_is_named_by_its_path(client, reference):
    reply = await client.post(input=[{"type": "item_reference", **reference}])

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "input[0].id")


@pytest.mark.parametrize("item_id", ["", "rs", "rs_", "resp_1", "rs_100", "x" * 5000, "rs_{0}"])
async def test_a_reference_to_nothing_is_a_404(client, item_id):
    reply = await client.post(input=[{"type": "item_reference", "id": item_id}])

    assert (reply.status_code, reply.json["error"]["code"]) == (404, "item_not_found")


async def test_an_image_becomes_a_note_and_a_header_says_so(client, engine):
    engine.script = say("I cannot see it.")
    shot = {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "Shot:"}, IMAGE],
    }
    echo = {"type": "function_call", "call_id": "call_1", "name": "shoot", "arguments": "{}"}

    reply = await client.post(input=[{"role": "user", "content": [IMAGE]}, echo, shot])

    assert reply.status_code == 200
    assert reply.headers["X-Interlock-Warning"] == "unseen parts: 2"
    contents = [message["content"] for message in engine.conversations[-1]]
    assert contents == [NOTE, "", f"Shot:{NOTE}"]


async def test_an_image_in_a_chain_is_the_same_note_in_every_later_turn(client, services, engine):
    engine.script = say("I cannot see it.")
    first = await client.post(input=[{"role": "user", "content": [{"type": "input_text", "text": "See:"}, IMAGE]}])
    services.settings = Settings(images="refuse")

    second = await client.post(input="Well?", previous_response_id=first.json["id"])

    assert (second.status_code, second.headers.get("X-Interlock-Warning")) == (200, None)
    contents = [message["content"] for message in engine.conversations[-1]]
    assert contents == [f"See:{NOTE}", "I cannot see it.", "Well?"]


async def test_items_nobody_knows_keep_their_words_or_are_skipped(client, engine):
    engine.script = say("Yes.")
    items = [
        {"type": "agent_message", "content": [{"type": "text", "text": "From another agent."}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."},
        {"role": "user", "content": "Go on."},
    ]

    reply = await client.post(input=items)

    assert reply.status_code == 200
    first, answer, last = engine.conversations[-1]
    assert first["content"] == "From another agent."
    assert first["tool_calls"][0]["function"] == {"name": "patch", "arguments": {"input": "*** Begin"}}
    assert (answer["content"], last["content"]) == ("Done.", "Go on.")
