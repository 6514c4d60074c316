"""A step that breaks in a way no row names: 500 before the first frame, `response.failed` after it, nothing stored."""

import asyncio

import pytest

from engine.errors import DecodeError
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
    services.pending.reserve("resp_0")
    services.pending.wait = breaking(ZeroDivisionError())


def break_preparing(_services, engine):
    engine.tokenize = breaking(ZeroDivisionError())


def break_queued(services, _engine):
    services.models[MODEL].slots.enter = breaking(ZeroDivisionError())


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
    del services.models[MODEL].created_at

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
    assert not services.pending.is_pending(ended[-1].head.id)


@pytest.mark.parametrize("stream", [False, True])
async def test_while_the_failure_is_sent(client, engine, ended, monkeypatch, stream):
    engine.script = [DecodeError("broken")]
    monkeypatch.setattr("handlers.outbox.Outbox.deliver", breaking(ZeroDivisionError()))

    reply = await client.post(input="Hello", stream=stream)

    assert (ended[-1].state, ended[-1].trace[-1].source) == (State.FAILED, State.FAILING)
    assert stream or (reply.status_code, reply.json["error"]["code"]) == (500, "server_error")


@pytest.mark.parametrize(("error", "event"), [(ZeroDivisionError(), "crashed"), (WriteError("disk full"), "row_lost")])
async def test_while_the_row_is_written(client, services, engine, ended, error, event):
    engine.script = say("The")
    services.store.put = breaking(error)

    reply = await client.post(input="Hello")
    while services.running:
        await asyncio.wait(services.running)

    assert reply.json["status"] == "completed"
    assert (ended[-1].state, ended[-1].event) == (State.FAILED, event)
    assert not services.pending.is_pending(reply.json["id"])
