"""A server that stops: what waits is refused, what streams is ended with its own event, nothing is cut."""

import asyncio

import pytest

from engine.errors import LoadError
from engine.pieces import Text
from engine.scripted import Pause, call, stop
from handlers import application, lifespan
from handlers.app import create_app
from handlers.settings import Settings
from machines.exchange import State
from machines.output import Item
from storage.errors import WriteError
from storage.rows import Missing, TraceQuery
from storage.store import open_store
from tests.asgi import running
from tests.doubles import MODEL, NOW, hold, say, to_services, watch
from tests.sequences.laws import assert_laws, to_events


async def drained(client, call) -> None:
    client.app.begin_drain(0)
    await call.reply()


async def test_a_stream_is_ended_with_response_failed(client, engine, ended):
    pause = Pause()
    engine.script = [Text("The"), pause]
    call = client.start(input="Hello", stream=True)
    await pause.reached.wait()

    await drained(client, call)

    events = to_events(call.text)
    assert_laws(events)
    assert events[-1]["response"]["error"]["message"] == "The server is stopping; retry."
    assert [move.event for move in ended[-1].trace][-2:] == ["server_stopping", "failure_sent"]


async def test_a_call_that_was_being_shown_is_closed(client, engine, ended):
    engine.script = call("look", {"at": "herons"}) * 60 + stop()
    reading = client.start(input="Hello", stream=True)
    reading.unread = asyncio.Semaphore(2)
    await reading.seen("response.in_progress")
    for _ in range(500):
        await asyncio.sleep(0)

    client.app.begin_drain(0)
    for _ in range(100):
        reading.unread.release()
    await reading.reply()

    events = to_events(reading.text)
    assert_laws(events)
    assert events[-1]["type"] == "response.failed"
    assert ended[-1].output.trace[-1].source is Item.CALL


async def test_a_request_that_comes_later_is_refused(client, engine):
    engine.script = say("Hi")
    client.app.begin_drain(60)

    reply = await client.post(input="Hello")

    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")


async def test_a_stream_that_ends_in_time_is_left_alone(client, engine):
    pause = Pause()
    engine.script = [pause, *say("Hi")]
    call = client.start(input="Hello", stream=True)
    await pause.reached.wait()

    client.app.begin_drain(60)
    pause.resume.set()
    await call.reply()

    assert to_events(call.text)[-1]["type"] == "response.completed"


def reading(_services, _engine, call):
    call.withhold_body()


def resolving(services, _engine, _call):
    return hold(services.store, "chain")


def awaiting(services, _engine, _call):
    services.writes.reserve("resp_0", None)
    return watch(services.writes, "settled")


def preparing(_services, engine, _call):
    return hold(engine, "tokenize")


def queued(services, _engine, _call):
    services.models[MODEL].slots.take()
    return watch(services.models[MODEL].slots, "take")


@pytest.mark.parametrize(
    ("block", "previous", "state"),
    [
        (reading, None, State.VALIDATING),
        (resolving, "resp_0", State.RESOLVING),
        (awaiting, "resp_0", State.AWAITING_WRITE),
        (preparing, None, State.PREPARING),
        (queued, None, State.QUEUED),
    ],
)
async def test_a_request_that_waits_is_refused(client, services, engine, ended, block, previous, state):
    call = client.start(input="Hello", previous_response_id=previous)
    blocked = block(services, engine, call)
    if blocked is not None:
        await blocked.wait()
    else:
        await asyncio.sleep(0)  # the exchange starts

    await drained(client, call)

    assert (call.status_code, call.json["error"]["code"]) == (503, "server_stopping")
    assert (ended[-1].state, ended[-1].trace[-1].source) == (State.REFUSED, state)


@pytest.mark.parametrize(("forget", "stops"), [(True, False), (False, True)])
async def test_a_server_stops_only_if_a_model_it_has_could_not_be_loaded(services, engine, forget, stops):
    async def fail():
        raise LoadError("No.")

    engine.load = fail
    given_up = []
    services.give_up = lambda: given_up.append(True)
    if forget:
        services.models.unregister(MODEL)

    async with running(create_app(services)):
        while services.running:
            await asyncio.wait(services.running)

    assert bool(given_up) is stops


async def test_a_row_that_could_not_be_written_is_tried_once_more(engine, tmp_path):
    file = str(tmp_path / "responses.duckdb")
    store = open_store(file)
    broken, put = [True], store.put

    async def put_if_whole(row):
        if broken:
            raise WriteError("disk full")
        await put(row)

    store.put = put_if_whole
    services, engine.script = to_services(engine, store), say("Yes.")
    async with running(create_app(services)) as client:
        reply = await client.post(input="Hello")
        await asyncio.gather(*services.running)
        broken.clear()

    again = open_store(file)
    chain = await again.chain(reply.json["id"], NOW)
    await again.close()
    assert [row.id for row in chain.rows] == [reply.json["id"]]


async def test_a_write_that_hangs_does_not_hold_the_stop_and_is_told(services, engine, store, monkeypatch, caplog):
    monkeypatch.setattr(lifespan, "LAST_WRITES_SECONDS", 0.01)
    hold(store, "put")
    engine.script = say("Yes.")
    async with running(create_app(services)) as client:
        await client.post(input="Hello")

    assert "the server stops without 1 rows" in caplog.text


async def test_a_stop_waits_for_the_calls_it_ends_and_no_longer_than_it_said(client, services, engine):
    pause = Pause()
    engine.script = [Text("The"), pause]
    call = client.start(input="Hello", stream=True)
    await pause.reached.wait()

    client.app.begin_drain(60)
    closing = asyncio.create_task(client.app.close())
    await asyncio.sleep(0)
    assert not closing.done()
    client.app.begin_drain(0)
    await closing

    await call.reply()
    assert to_events(call.text)[-1]["type"] == "response.failed"
    assert services.running == set()


@pytest.mark.parametrize("durable", [False, True])
async def test_a_reader_that_takes_no_last_word_is_given_up_and_its_row_with_it(
    engine, ended, tmp_path, monkeypatch, caplog, durable
):
    monkeypatch.setattr(application, "LAST_WORDS_SECONDS", 0)
    file = str(tmp_path / "responses.duckdb")
    services = to_services(engine, open_store(file), Settings(durable=durable))
    engine.script = say("Yes.")
    async with running(create_app(services)) as client:
        call = client.start(input="Hello", stream=True)
        call.stall_on = b"response.completed"
        await call.seen("response.created")
        (exchange,) = services.exchanges
        await watch(exchange.outbox, "deliver").wait()

        client.app.begin_drain(0)
        await client.app.close()
        call.leave()
        call.unread.release()
        await call.reply()

    assert (ended[-1].event, ended[-1].trace[-1].source) == ("client_stalled", State.EMITTING)
    again = open_store(file)
    assert await again.chain(ended[-1].head.id, NOW) == Missing()
    assert [trace.event for trace in await again.traces(TraceQuery(limit=9))] == ["client_stalled"]
    await again.close()
    assert "the server stops without" not in caplog.text


async def test_a_stop_waits_also_for_a_response_that_no_call_waits_for(client, services, engine, ended, monkeypatch):
    monkeypatch.setattr(lifespan, "LAST_WRITES_SECONDS", 0)
    pause = Pause()
    engine.script = [pause, *say("Yes.")]
    await client.post(input="Hello", background=True)
    await pause.reached.wait()
    letting_go = watch(services.models, "close")

    client.app.begin_drain(60)
    closing = asyncio.create_task(client.app.close())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not letting_go.is_set()
    pause.resume.set()
    await closing

    assert (ended[-1].event, ended[-1].job.ended.status) == ("terminal_sent", "completed")
