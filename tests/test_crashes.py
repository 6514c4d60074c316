"""A step that breaks in a way no row names: 500 before the first frame, `response.failed` after it, nothing stored."""

import asyncio
from functools import partial

import pytest

from engine.errors import DecodeError
from handlers.settings import Settings
from machines.exchange import State
from storage.errors import WriteError
from tests.doubles import MODEL, NOW, say
from tests.sequences.laws import assert_laws, to_events


def breaking(error: Exception):
    async def break_off(*_, **__):
        raise error

    return break_off


def break_validating(services, _engine):
    services.settings = None


def break_resolving(services, _engine):
    services.store.chain = breaking(ZeroDivisionError())


def break_awaiting_write(services, _engine):
    services.writes.reserve("resp_0", None)
    services.writes.settled = breaking(ZeroDivisionError())


def break_preparing(_services, engine):
    engine.tokenize = breaking(ZeroDivisionError())


def break_queued(services, _engine):
    services.models[MODEL].slots.take = None


UNSEEN = [
    (break_validating, None),
    (break_resolving, "resp_0"),
    (break_awaiting_write, "resp_0"),
    (break_preparing, None),
    (break_queued, None),
]


@pytest.mark.parametrize(("break_state", "previous"), UNSEEN)
async def test_before_the_first_frame(client, services, engine, ended, caplog, break_state, previous):
    break_state(services, engine)

    reply = await client.post(input="Hello", previous_response_id=previous)

    assert reply.status_code == 500
    assert reply.json["error"]["code"] == "server_error"
    assert (ended[-1].state, ended[-1].event) == (State.REFUSED, "crashed")
    assert [record for record in caplog.records if record.exc_info]


async def test_in_a_resource_that_is_no_exchange(client, services):
    services.models._created.clear()

    reply = await client.request("GET", "/v1/models")

    assert reply.status_code == 500
    assert reply.json["error"]["code"] == "server_error"


async def test_while_it_decodes(client, engine):
    engine.script = [*say("The")[:1], ZeroDivisionError()]

    reply = await client.post(input="Hello", stream=True)

    events = to_events(reply.text)
    assert_laws(events)
    assert events[-1]["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_while_the_terminal_event_is_made_it_is_a_failure(client, services, engine, ended, stream):
    engine.script = say("The")
    times = iter([NOW])
    services.clock = lambda: next(times)

    reply = await client.post(input="Hello", stream=stream)

    failed = to_events(reply.text)[-1]["response"] if stream else reply.json
    assert failed["error"]["code"] == "server_error"
    assert [move.source for move in ended[-1].trace][-2:] == [State.EMITTING, State.FAILING]
    assert not services.writes.is_pending(ended[-1].head.id)


@pytest.mark.parametrize("stream", [False, True])
async def test_while_the_failure_is_sent(client, engine, ended, monkeypatch, stream):
    engine.script = [DecodeError("broken")]
    monkeypatch.setattr("handlers.outbox.Outbox.deliver", breaking(ZeroDivisionError()))

    reply = await client.post(input="Hello", stream=stream)

    assert (ended[-1].state, ended[-1].trace[-1].source) == (State.FAILED, State.FAILING)
    assert stream or (reply.status_code, reply.json["error"]["code"]) == (500, "server_error")


async def ended_all(services):
    while services.running:
        await asyncio.wait(services.running)


async def test_while_the_write_is_started(client, services, engine, ended):
    engine.script = say("The")

    def start(*_):
        raise ZeroDivisionError

    services.writes.start = start

    reply = await client.post(input="Hello")
    await ended_all(services)

    assert reply.json["status"] == "completed"
    assert (ended[-1].state, ended[-1].event) == (State.FAILED, "crashed")
    assert not services.writes.is_pending(reply.json["id"])


async def test_a_row_that_was_lost_is_written_again_when_it_is_named(client, services, engine, ended):
    engine.script = say("The")
    put = services.store.put
    services.store.put = breaking(WriteError("disk full"))
    first = await client.post(input="Hello")
    await ended_all(services)
    assert (ended[-1].state, ended[-1].event) == (State.FAILED, "row_lost")

    health = await client.request("GET", "/health")
    refused = await client.post(input="And?", previous_response_id=first.json["id"])
    services.store.put = put
    for write in services.writes.failed:
        write.attempt = partial(put, write.attempt.args[0])
    answered = await client.post(input="And?", previous_response_id=first.json["id"])

    assert (health.status_code, health.json["status"], health.json["writes"]["unwritten_rows"]) == (200, "degraded", 1)
    assert (refused.status_code, answered.status_code) == (503, 200)
    assert (await client.request("GET", "/health")).json["status"] == "ok"


async def test_a_late_row_is_awaited_by_the_next_turn(client, services, engine, ended):
    engine.script = say("The")
    services.settings = Settings(persist_wait_ms=1)
    put, let = services.store.put, asyncio.Event()

    async def put_late(row):
        await let.wait()
        await put(row)

    services.store.put = put_late
    first = await client.post(input="Hello")
    await ended_all(services)
    assert (ended[-1].state, ended[-1].event) == (State.DONE, "row_late")
    services.store.put = put

    second = client.start(input="And?", previous_response_id=first.json["id"])
    for _ in range(20):
        await asyncio.sleep(0)
    let.set()
    await second.reply()

    assert second.status_code == 200


async def test_a_row_found_by_the_last_look_is_continued(client, services, engine):
    engine.script = say("The")
    first = await client.post(input="Hello")
    await ended_all(services)
    services.settings = Settings(write_wait_ms=1)
    services.writes.reserve(first.json["id"], None)
    services.writes.start(first.json["id"], asyncio.Event().wait)

    second = await client.post(input="And?", previous_response_id=first.json["id"])

    assert second.status_code == 200


async def test_each_exchange_leaves_a_trace_without_content(client, services, engine):
    engine.script = say("The")
    traces = []
    services.store.record = traces.append

    await client.post(input="A secret.")
    await client.post(model="A secret.", input="Hello")
    await ended_all(services)

    assert {(trace.state, trace.event, trace.status) for trace in traces} == {
        ("DONE", "row_written", None), ("REFUSED", "model_unknown", 404)
    }  # fmt: skip
    assert "A secret." not in repr(traces)


async def test_no_trace_is_kept_when_traces_are_off(client, services, engine):
    engine.script = say("The")
    services.settings = Settings(trace_retention_seconds=0)
    services.store.record = breaking(ZeroDivisionError())

    reply = await client.post(input="Hello")

    assert reply.status_code == 200
