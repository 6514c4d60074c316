"""What was computed before: who may use it, when it may be used, and what the client is told of it."""

import json

import pytest

from engine.errors import DecodeError
from engine.pieces import Finish, Text
from engine.scripted import Pause, stop
from handlers.app import create_app
from handlers.settings import Settings
from storage.errors import WriteError
from tests.asgi import running
from tests.doubles import MODEL, say, to_services
from tests.sequences.laws import to_events


def answer(text="Yes.", *, prompt=10, cached=0):
    finish = Finish(reason="stop", prompt_tokens=prompt, completion_tokens=2, cached_tokens=cached)
    return [Text(text), finish]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("continues", "cached", "word"),
    [
        (False, 0, "fresh"),
        (False, 4, "prefix_hit"),
        (True, 0, "cold_replay"),
        (True, 4, "prefix_hit"),
        (True, 10, "hit"),
        (True, 17, "hit"),
    ],
)
async def test_a_header_says_what_was_reused(client, engine, stream, continues, cached, word):
    engine.script = answer()
    first = (await client.post(input="Hello")).json["id"] if continues else None
    engine.script = answer(prompt=20, cached=cached)

    reply = await client.post(input="And?", stream=stream, previous_response_id=first)

    assert reply.headers["X-Session-Cache"] == word
    response = to_events(reply.text)[-1]["response"] if stream else reply.json
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": cached, "cache_write_tokens": 0}


async def test_a_stream_opened_by_a_heartbeat_leaves_the_header_out(engine, store):
    pause = Pause()
    engine.script = [pause, *answer(cached=4)]
    services = to_services(engine, store, Settings(heartbeat_seconds=0.01))
    async with running(create_app(services)) as client:
        call = client.start(input="Hello", stream=True)
        await call.seen("response.in_progress")
        pause.resume.set()
        reply = await call.reply()

    assert "X-Session-Cache" not in reply.headers
    events = to_events(reply.text)
    assert events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stored", [False, True])
async def test_an_answer_that_was_delivered_is_kept(client, engine, stream, stored):
    engine.script = say("Yes.")

    await client.post(input="Hello", stream=stream, store=stored)

    assert engine.decodings[0].is_kept


async def test_an_answer_cut_by_its_limit_is_kept_for_it_can_be_continued(client, engine):
    engine.script = say("Ye", reason="length")

    await client.post(input="Hello")

    assert engine.decodings[0].is_kept


@pytest.mark.parametrize(("is_durable", "is_kept"), [(False, True), (True, False)])
async def test_an_answer_whose_row_was_lost_is_kept_if_its_client_had_it(engine, store, is_durable, is_kept):
    async def fail(_):
        raise WriteError("disk full")

    engine.script, store.put = say("Yes."), fail
    async with running(create_app(to_services(engine, store, Settings(durable=is_durable)))) as client:
        reply = await client.post(input="Hello")

    assert reply.status_code == (500 if is_durable else 200)
    assert engine.decodings[0].is_kept is is_kept


@pytest.mark.parametrize("script", [[Text("Y"), DecodeError("No.")], [Text("Y")], [Text("Y"), *stop("error")]])
async def test_an_answer_that_failed_is_not_kept(client, engine, script):
    engine.script = script

    await client.post(input="Hello", stream=True)

    assert not engine.decodings[0].is_kept


async def test_an_answer_whose_end_nobody_saw_is_not_kept(client, engine, ended):
    engine.script = say("Yes.")
    call = client.start(input="Hello", stream=True)
    call.leave_on = b"response.completed"

    await call.reply()

    assert ended
    assert not engine.decodings[0].is_kept


async def test_clients_with_other_credentials_are_other_owners(client, engine):
    engine.script = say("Yes.")
    body = json.dumps({"model": MODEL, "input": "Hello"}).encode()

    for key in ("Bearer a", "Bearer b", "Bearer a"):
        await client.request("POST", "/v1/responses", body, Authorization=key)
    await client.request("POST", "/v1/responses", body)

    a, b, again, nobody = engine.owners
    assert a == again
    assert len({a, b, nobody}) == 3
    assert "Bearer" not in "".join(engine.owners)


@pytest.mark.parametrize("effort", ["none", "high", None])
async def test_the_effort_reaches_the_template(client, engine, effort):
    engine.script = say("Yes.")

    await client.post(input="Hello", reasoning={"effort": effort})

    assert engine.efforts == [effort]
