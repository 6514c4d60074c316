"""Streams that wait are kept alive by the one event all clients heed, `response.in_progress`."""

import asyncio

import pytest

from engine.scripted import Pause
from handlers.exchange import Exchange
from handlers.settings import Settings
from machines.exchange import State
from tests.doubles import MODEL, say
from tests.sequences.laws import to_events
from tests.test_refusals import swap


@pytest.fixture(autouse=True)
def quick(services):
    services.settings = Settings(heartbeat_seconds=0.001)


def names(text):
    return [event["type"] for event in to_events(text)]


async def test_a_stream_that_waits_for_the_model_opens_and_beats(client, engine, services, ended):
    engine.script = say("Hi")
    running = services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    await call.seen('"sequence_number":4')

    running.leave()
    await call.reply()

    events = to_events(call.text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert names(call.text)[:5] == ["response.created", *["response.in_progress"] * 4]
    assert names(call.text)[-1] == "response.completed"
    assert [move.target for move in ended[-1].trace if move.event == "heartbeat_due"] == [State.HELD]


async def test_a_stream_beats_while_a_long_prompt_is_read(client, engine):
    pause = Pause()
    engine.script = [pause, *say("Hi")]
    call = client.start(input="Hello", stream=True)
    await call.seen('"sequence_number":5')

    pause.resume.set()
    await call.reply()

    assert names(call.text)[-1] == "response.completed"


async def test_a_stream_that_has_ended_does_not_beat_while_its_row_is_written(client, engine, services, monkeypatch):
    engine.script = say("Hi")
    beat, put, after_the_end = Exchange.beat, services.store.put, []

    async def noted(exchange):
        after_the_end.append(exchange.outbox.is_delivered)
        await beat(exchange)

    async def put_slowly(row):
        await asyncio.sleep(0.02)
        await put(row)

    monkeypatch.setattr(Exchange, "beat", noted)
    services.store.put = put_slowly

    await client.post(input="Hello", stream=True)
    while services.running:
        await asyncio.wait(services.running)

    assert set(after_the_end) == {False}


async def test_a_whole_reply_waits_in_silence(client, engine, services, ended):
    engine.script = say("Hi")
    running = services.models[MODEL].slots.take()
    call = client.start(input="Hello")
    await asyncio.sleep(0.01)

    running.leave()
    await call.reply()

    assert call.json["status"] == "completed"
    while services.running:
        await asyncio.wait(services.running)
    assert "heartbeat_due" not in [move.event for move in ended[-1].trace]


async def test_a_swap_while_the_stream_is_held_is_a_failure(client, services, ended):
    running = services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    await call.seen("response.in_progress")

    await swap(services.models)
    running.leave()
    await call.reply()

    assert names(call.text)[-1] == "response.failed"
    assert "was replaced while the request waited" in call.text
    assert ended[-1].state is State.FAILED


async def test_a_held_reader_that_fails_frees_its_place_before_it_is_told(client, engine, services):
    running = services.models[MODEL].slots.take()
    slots = services.models[MODEL].slots
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(2)
    await call.seen("response.in_progress")

    await swap(services.models)
    running.leave()
    for _ in range(50):
        await asyncio.sleep(0)

    assert (slots.running, slots.waiting) == (0, 0)
    for _ in range(100):
        call.unread.release()
    await call.reply()
    assert names(call.text)[-1] == "response.failed"


async def test_an_interruption_that_meets_the_end_of_a_decode_is_not_lost(client, engine, services, ended):
    engine.script = say("Hi")
    loop = asyncio.get_running_loop()
    wait = asyncio.wait

    async def interrupted_wait(tasks, **named):
        for exchange in list(services.exchanges):
            loop.call_soon(exchange.leave)
        return await wait(tasks, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handlers.heartbeat.asyncio.wait", interrupted_wait)
        await client.post(input="Hello", stream=True)

    assert (ended[-1].event, ended[-1].trace[-1].source) == ("client_gone", State.DISPATCHING)


async def test_a_stop_while_the_stream_is_held_is_a_failure(client, services):
    services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    await call.seen("response.in_progress")

    client.app.begin_drain(0)
    await call.reply()

    assert names(call.text)[-1] == "response.failed"


async def test_a_crash_while_the_stream_is_held_is_a_failure(client, services):
    running = services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    await call.seen("response.in_progress")

    services.models.is_current = None
    running.leave()
    await call.reply()

    assert names(call.text)[-1] == "response.failed"


async def test_a_held_reader_that_stands_still_is_given_up(client, services, ended, monkeypatch):
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.05)
    services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(2)
    await call.seen("response.in_progress")

    while services.exchanges:
        await asyncio.wait(services.running)

    assert (ended[-1].event, ended[-1].trace[-1].source) == ("client_stalled", State.HELD)
    call.leave()
    call.unread.release()
    await call.reply()
