"""A client that leaves, in whatever its exchange is doing: what was held is let go, and nothing is stored."""

import asyncio
import json

import pytest

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause
from handlers.exchange import Exchange, Incoming
from handlers.settings import Settings
from handlers.steps import start
from machines.exchange import State
from storage.rows import Chain, Missing
from tests.asgi import Call
from tests.doubles import MODEL, NOW, hold, say, watch

WHOLE = [False, True]


@pytest.fixture
async def idle(services, ended):
    """Give a check, to be called at the end of a test, that nothing is held any more."""

    async def check(state: State = State.ABANDONED) -> Exchange:
        await asyncio.sleep(0)
        while services.running:
            await asyncio.wait(services.running)
        slots = services.models[MODEL].slots
        assert [exchange.state for exchange in ended[-1:]] == [state]
        assert (slots.waiting, slots.running) == (0, 0)
        assert not services.writes.is_pending("resp_1")
        return ended[-1]

    return check


def left(exchange: Exchange) -> State:
    """Give the state the client left in."""
    assert exchange.trace[-1].event == "client_gone"
    return exchange.trace[-1].source


async def test_before_the_exchange_ran(services, idle):
    exchange = Exchange(services, Incoming(method="POST", path="/v1/responses"))

    start(exchange)
    exchange.leave()

    assert left(await idle()) is State.ROUTING


async def test_before_its_body_was_whole(client, idle, engine):
    call = client.start(input="Hello")
    call.withhold_body()
    call.leave()
    await call.reply()

    assert left(await idle()) is State.VALIDATING
    assert engine.decodes == []


@pytest.mark.parametrize("stream", WHOLE)
async def test_while_the_chain_is_read(client, idle, services, stream):
    reading = hold(services.store, "chain")
    call = client.start(input="Hello", previous_response_id="resp_0", stream=stream)
    await reading.wait()

    call.leave()
    await call.reply()

    assert left(await idle()) is State.RESOLVING


async def test_while_a_write_is_awaited(client, idle, services):
    services.writes.reserve("resp_0", None)
    waiting = watch(services.writes, "settled")
    call = client.start(input="Hello", previous_response_id="resp_0")
    await waiting.wait()

    call.leave()
    await call.reply()

    assert left(await idle()) is State.AWAITING_WRITE


async def test_while_the_prompt_is_made(client, idle, engine):
    making = hold(engine, "tokenize")
    call = client.start(input="Hello")
    await making.wait()

    call.leave()
    await call.reply()

    assert left(await idle()) is State.PREPARING


@pytest.mark.parametrize("stream", WHOLE)
async def test_while_it_waits_for_the_model(client, idle, engine, services, stream):
    pause = Pause()
    engine.script = [pause, *say("Yes.")]
    first = client.start(input="Hello", store=False)
    await pause.reached.wait()
    waiting = watch(services.models[MODEL].slots, "take")
    second = client.start(input="Me too", stream=stream)
    await waiting.wait()
    assert services.models[MODEL].slots.waiting == 1

    second.leave()
    await second.reply()

    assert services.models[MODEL].slots.waiting == 0
    pause.resume.set()
    assert (await first.reply()).status_code == 200
    await idle(State.DONE)
    assert len(engine.decodes) == 1


async def test_while_its_stream_is_held_open(client, idle, engine, services):
    services.settings = Settings(heartbeat_seconds=0.001)
    running = services.models[MODEL].slots.take()
    call = client.start(input="Hello", stream=True)
    await call.seen('"sequence_number":3')

    call.leave()
    await call.reply()

    running.leave()
    assert left(await idle()) is State.HELD
    assert engine.decodes == []


@pytest.mark.parametrize("stream", WHOLE)
async def test_while_the_model_decodes(client, idle, engine, services, stream):
    pause = Pause()
    engine.script = [Text("The"), pause, *say(" capital")]
    call = client.start(input="Hello", stream=stream)
    await pause.reached.wait()

    call.leave()
    await call.reply()

    exchange = await idle()
    assert left(exchange) is State.DISPATCHING
    assert engine.cancelled == 1
    assert await services.store.chain(exchange.head.id, NOW) == Missing()


@pytest.mark.parametrize("stream", WHOLE)
@pytest.mark.parametrize(
    ("script", "state", "terminal"),
    [
        (say("The", " capital"), State.EMITTING, b'"status":"completed","incomplete_details"'),
        ([Text("The"), DecodeError("broken")], State.FAILING, b'"code":"server_error"'),
    ],
)
async def test_while_the_terminal_event_leaves(client, idle, engine, services, stream, script, state, terminal):
    engine.script = script
    call = client.start(input="Hello", stream=stream)
    call.leave_on = terminal
    await call.reply()

    exchange = await idle()

    assert left(exchange) is state
    assert await services.store.chain(exchange.head.id, NOW) == Missing()


async def test_after_the_terminal_event_the_row_is_kept(client, idle, engine, services):
    engine.script = say("The")
    call = client.start(input="Hello", stream=True)
    call.leave_on = b"[DONE]"
    await call.reply()

    exchange = await idle(State.DONE)

    assert len((await services.store.chain(exchange.head.id, NOW)).rows) == 1


async def test_a_reader_that_stands_still_pauses_the_engine(client, idle, engine):
    engine.script = say(*("word " for _ in range(1000)))
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(2)
    await call.seen("response.in_progress")

    for _ in range(500):
        await asyncio.sleep(0)

    assert engine.decodings[0].played < 100
    call.leave()
    call.unread.release()
    await call.reply()
    assert left(await idle()) is State.DISPATCHING
    assert engine.cancelled == 1


async def test_a_slow_but_steady_reader_is_not_given_up(client, idle, engine, services, monkeypatch):
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.5)
    engine.script = say(*("word " for _ in range(25)))
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(0)

    while not call.task.done():
        await asyncio.sleep(0.03)
        call.unread.release()

    exchange = await idle(State.DONE)
    assert isinstance(await services.store.chain(exchange.head.id, NOW), Chain)


@pytest.mark.parametrize("stream", WHOLE)
@pytest.mark.parametrize(
    ("script", "at", "state"),
    [
        (say(*("word " for _ in range(1000))), b"response.in_progress", State.DISPATCHING),
        (say("The"), b"response.completed", State.EMITTING),
        ([Text("The"), DecodeError("broken")], b"response.failed", State.FAILING),
    ],
)
async def test_a_reader_that_stands_still_too_long_is_given_up(
    client, idle, engine, services, monkeypatch, stream, script, at, state
):  # fmt: skip
    if not stream and state is State.DISPATCHING:
        pytest.skip("a whole reply takes every event at once")
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.01)
    engine.script = script
    call = client.start(input="Hello", stream=stream)
    call.stall_on = at if stream else b"{"

    exchange = await idle()

    assert (exchange.trace[-1].event, exchange.trace[-1].source) == ("client_stalled", state)
    assert await services.store.chain(exchange.head.id, NOW) == Missing()
    call.leave()
    call.unread.release()
    await call.reply()


async def test_a_reader_that_was_given_up_and_reads_on_is_told_of_no_end_that_is_not_kept(
    client, idle, engine, monkeypatch
):  # fmt: skip
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.01)
    engine.script = say("The")
    call = client.start(input="Hello", stream=True)
    call.stall_on = b"response.output_item.added"
    await idle()

    for _ in range(100):
        call.unread.release()
    await call.reply()

    assert "response.output_item.added" in call.text
    assert "response.completed" not in call.text
    assert "[DONE]" not in call.text


class Breaking(Call):
    """A connection that breaks with an error while something is sent."""

    breaks_on = b""

    async def _send(self, message):
        if self.breaks_on in message["type"].encode() + message.get("body", b""):
            raise OSError("broken pipe")
        await super()._send(message)


@pytest.mark.parametrize(
    ("stream", "breaks_on", "state"),
    [
        (False, b"http.response.start", State.EMITTING),
        (False, b'"status":"completed"', State.EMITTING),
        (True, b"http.response.start", State.DISPATCHING),
        (True, b"event: response.created", State.DISPATCHING),
        (True, b"event: response.completed", State.EMITTING),
    ],
)
async def test_a_connection_that_breaks_while_it_is_written_to_is_a_client_that_left(
    client, idle, engine, services, stream, breaks_on, state
):  # fmt: skip
    engine.script = say("The")
    body = json.dumps({"model": MODEL, "input": "Hello", "stream": stream}).encode()
    call = Breaking(client.app, "POST", "/v1/responses", body, {})
    call.breaks_on = breaks_on

    with pytest.raises(OSError, match="broken pipe"):
        await call.reply()

    exchange = await idle()
    assert left(exchange) is state
    assert not engine.decodings[0].is_kept
    assert not call.text.endswith("[DONE]\n\n")
    assert await services.store.chain(exchange.head.id, NOW) == Missing()
