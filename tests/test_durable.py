"""INTERLOCK_DURABLE=1: the row is written before the terminal event leaves, and is gone if that never does."""

import asyncio
from http import HTTPStatus

import pytest

from engine.scripted import ScriptedEngine
from handlers.app import create_app
from handlers.outbox import Outbox
from machines.exchange import DURABLE, EXCHANGE, REFUSALS, State
from storage.errors import WriteError
from storage.rows import Missing
from storage.store import open_store
from tests.asgi import running
from tests.doubles import NOW, say, to_services, watch
from tests.durable import (  # noqa: F401  fixtures
    BOTH,
    Gate,
    assert_nothing_is_left,
    calm,
    continued,
    durable,
    durable_services,
    fails,
    held_puts,
    stored,
    to_terminal,
)
from tests.sequences.laws import assert_laws, to_events
from tests.sequences.test_text import SCENARIOS
from tests.test_refusals import PROVOKE, SPOKEN, World


@pytest.fixture
def found_first(monkeypatch):
    """Tell what the store has when the terminal event is about to leave."""
    found = []
    deliver = Outbox.deliver

    def looking(services):
        async def look(outbox, event):
            found.append(await stored(services, event.response.id))
            await deliver(outbox, event)

        monkeypatch.setattr(Outbox, "deliver", look)
        return found

    return looking


# The row, then the terminal event


@BOTH
@pytest.mark.parametrize("scenario", ["plain_text", "length_stop", "text_then_two_calls", "empty_output"])
async def test_the_row_is_in_the_store_when_the_terminal_event_leaves(
    client, services, engine, found_first, scenario, stream
):
    engine.script = SCENARIOS[scenario]
    found = found_first(services)

    reply = await client.post(input="Hello", stream=stream)

    (row,) = found[0].rows
    terminal = to_terminal(reply, stream)
    assert (row.id, row.status) == (terminal["id"], terminal["status"])


async def test_without_the_setting_the_terminal_event_leaves_first(engine, store, found_first):
    engine.script = say("Noted.")
    services = to_services(engine, store)
    found = found_first(services)

    async with running(create_app(services)) as client:
        await client.post(input="Hello")

    assert found == [Missing()]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_stream_reads_the_same_as_without_the_setting(client, engine, store, scenario):
    engine.script = SCENARIOS[scenario]
    asked = {"input": "Hello", "stream": True}

    reply = await client.post(**asked)

    assert_laws(to_events(reply.text))
    async with running(create_app(to_services(engine, open_store(":memory:")))) as other:
        assert reply.text == (await other.post(**asked)).text


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_whole_reply_reads_the_same_as_the_end_of_its_stream(scenario):
    replies = []
    for stream in (False, True):
        services = to_services(ScriptedEngine(SCENARIOS[scenario]), open_store(":memory:"), durable())
        async with running(create_app(services)) as client:
            replies.append(await client.post(input="Hello", stream=stream))

    whole, terminal = replies[0].json, to_events(replies[1].text)[-1]["response"]

    assert whole["error"] == terminal["error"]
    assert terminal["status"] == "failed" or whole == terminal


async def test_the_moves_of_a_request_show_the_order(client, services, ended):
    await client.post(input="Hello")
    await calm(services)

    assert [move.event for move in ended[-1].trace][-3:] == ["decode_finished", "row_written", "terminal_sent"]
    assert [move.target for move in ended[-1].trace][-3:] == [State.PERSISTING, State.EMITTING, State.DONE]
    assert ended[-1].table is DURABLE


async def test_a_continuation_at_once_finds_the_row_without_waiting(client, services, ended):
    first = await client.post(input="Hello")

    second = await continued(client, first.json["id"])
    await calm(services)

    assert second.status_code == HTTPStatus.OK
    assert "write_pending" not in [move.event for move in ended[-1].trace]


@BOTH
async def test_what_is_not_to_be_stored_is_not(client, services, ended, stream):
    services.store.put = fails

    reply = await client.post(input="Hello", stream=stream, store=False)

    assert to_terminal(reply, stream)["status"] == "completed"
    await assert_nothing_is_left(services, ended, State.DONE)
    assert (await continued(client)).status_code == HTTPStatus.NOT_FOUND


async def test_a_server_without_a_store_answers_all_the_same(engine):
    engine.script = say("Noted.")

    async with running(create_app(to_services(engine, None, durable()))) as client:
        reply = await client.post(input="Hello")

    assert (reply.json["status"], reply.json["store"]) == ("completed", False)


@pytest.mark.parametrize(
    "event", [event for event in REFUSALS if event not in {*SPOKEN, "token_absent", "token_wrong"}]
)
async def test_a_request_is_refused_as_without_the_setting(client, services, engine, event):
    reply = await PROVOKE[event](World(client, services, engine))

    assert reply.status_code == REFUSALS[event].status
    assert reply.json["error"]["code"] == REFUSALS[event].code


# The row is late, or lost


@BOTH
async def test_a_row_that_takes_too_long_is_late_and_the_terminal_event_leaves(client, services, puts, ended, stream):
    services.settings = durable(persist_wait_ms=1, write_wait_ms=1)

    reply = await client.post(input="Hello", stream=stream)
    early = await continued(client)
    puts.opened.set()
    await calm(services)
    later = await continued(client)

    assert to_terminal(reply, stream)["status"] == "completed"
    assert (early.status_code, early.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
    assert later.status_code == HTTPStatus.OK


async def test_a_row_that_is_late_and_then_lost_is_written_again_when_it_is_named(client, services, puts):
    services.settings = durable(persist_wait_ms=1)
    put, puts._method = puts._method, fails
    await client.post(input="Hello")
    puts.opened.set()
    await calm(services)
    puts._method = put

    assert (await continued(client)).status_code == HTTPStatus.OK


@BOTH
async def test_a_response_that_cannot_be_stored_fails_and_is_nowhere(client, services, ended, stream):
    put, services.store.put = services.store.put, fails

    reply = await client.post(input="Hello", stream=stream)

    error = to_terminal(reply, stream)["error"]
    assert reply.status_code == (HTTPStatus.OK if stream else HTTPStatus.INTERNAL_SERVER_ERROR)
    assert (error["code"], error["type"]) == ("server_error", "server_error")
    assert error["message"] == "The response could not be stored; retry, or set `store` to false."
    await assert_nothing_is_left(services, ended, State.FAILED)
    assert (await client.request("GET", "/health")).json["writes"]["unwritten_rows"] == 0
    services.store.put = put
    assert (await continued(client)).status_code == HTTPStatus.NOT_FOUND


async def test_the_stream_of_a_response_that_cannot_be_stored_keeps_the_laws(client, services):
    services.store.put = fails

    reply = await client.post(input="Hello", stream=True)

    events = to_events(reply.text)
    assert_laws(events)
    assert events[-1]["type"] == "response.failed"
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["completed"]


async def test_a_response_that_cannot_be_stored_is_unknown_before_its_client_has_read_so(client, services):
    services.store.put = fails
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(2)
    started = watch(services.writes, "start")
    await started.wait()

    assert (await continued(client)).status_code == HTTPStatus.NOT_FOUND

    assert not call.task.done()
    for _ in range(100):
        call.unread.release()
    await call.reply()


async def test_a_row_that_was_committed_though_its_write_failed_is_deleted(client, services, ended):
    put = services.store.put

    async def put_and_fail(row):
        await put(row)
        raise WriteError("the answer was lost")

    services.store.put = put_and_fail

    reply = await client.post(input="Hello")

    assert reply.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    await assert_nothing_is_left(services, ended, State.FAILED)


# The server ends, or breaks


@BOTH
async def test_a_stop_while_the_row_is_written_is_a_failure_and_leaves_nothing(client, services, puts, ended, stream):
    call = client.start(input="Hello", stream=stream)
    await puts.asked.wait()

    client.app.begin_drain(0)
    await call.reply()
    puts.opened.set()

    assert to_terminal(call, stream)["error"]["message"] == "The server is stopping; retry."
    await assert_nothing_is_left(services, ended, State.FAILED)
    assert ended[-1].trace[-2][:2] == ("server_stopping", State.PERSISTING)


async def test_a_server_that_ends_deletes_what_nobody_is_to_find_later(engine, tmp_path):
    engine.script = say("Noted.")
    file = str(tmp_path / "responses.duckdb")
    services = to_services(engine, open_store(file), durable())
    deletes = Gate(services.store, "withdraw")
    close = services.writes.provisional.close

    async def open_and_close(seconds):
        deletes.opened.set()
        await close(seconds)

    services.writes.provisional.close = open_and_close
    async with running(create_app(services)) as client:
        call = client.start(input="Hello", stream=True)
        call.leave_on = b"response.completed"
        await call.reply()
        await deletes.asked.wait()

    store = open_store(file)
    assert await store.chain("resp_1", NOW) == Missing()
    await store.close()


async def test_a_server_that_ends_does_not_wait_for_ever(engine, store, monkeypatch):
    monkeypatch.setattr("handlers.lifespan.LAST_DELETES_SECONDS", 0.001)
    engine.script = say("Noted.")
    services = to_services(engine, store, durable())
    deletes = Gate(store, "withdraw")

    async with running(create_app(services)) as client:
        call = client.start(input="Hello", stream=True)
        call.leave_on = b"response.completed"
        await call.reply()
        await deletes.asked.wait()
        (row,) = services.writes.provisional.known.values()

    assert row.state.name == "LEFT"


@BOTH
async def test_a_crash_while_the_row_is_written_is_a_failure(client, services, ended, stream):
    def break_off(*_):
        raise ZeroDivisionError

    services.writes.start = break_off

    reply = await client.post(input="Hello", stream=stream)

    assert to_terminal(reply, stream)["error"]["code"] == "server_error"
    assert ended[-1].trace[-2][:2] == ("crashed", State.PERSISTING)
    await assert_nothing_is_left(services, ended, State.FAILED)


@BOTH
async def test_a_crash_while_the_terminal_event_leaves_takes_the_row_back(client, services, ended, monkeypatch, stream):
    deliver = Outbox.deliver

    async def break_off(*_):
        monkeypatch.setattr(Outbox, "deliver", deliver)
        raise ZeroDivisionError

    monkeypatch.setattr(Outbox, "deliver", break_off)

    reply = await client.post(input="Hello", stream=stream)

    assert to_terminal(reply, stream)["error"]["code"] == "server_error"
    assert ended[-1].trace[-2][:2] == ("crashed", State.EMITTING)
    await assert_nothing_is_left(services, ended, State.FAILED)


@BOTH
async def test_a_clock_that_breaks_while_the_row_is_reserved_is_a_failure(client, services, ended, stream):
    times = iter([NOW])
    services.clock = lambda: next(times)

    reply = await client.post(input="Hello", stream=stream)

    services.clock = lambda: NOW
    assert to_terminal(reply, stream)["error"]["code"] == "server_error"
    await assert_nothing_is_left(services, ended, State.FAILED)


async def test_an_exchange_follows_the_table_that_the_settings_chose(engine, store):
    assert to_services(engine, store).table is EXCHANGE
    assert to_services(engine, store, durable()).table is DURABLE
