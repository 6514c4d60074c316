"""Background responses: accepted at once, made whoever looks, read from any place, ended whatever happens."""

import asyncio

import pytest

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause, stop
from handlers.journal import Journal
from handlers.settings import Settings
from handlers.wire.events import Created
from handlers.wire.sse import to_data
from machines.exchange import DURABLE, State
from machines.job import State as Job
from storage.rows import EventRow, Missing
from tests.doubles import MODEL, NOW, say
from tests.durable import BOTH, Gate, calm, fails
from tests.jobs import JOB, TERMINAL, ask, background, begun, done, numbers, reading, statuses, until
from tests.sequences.laws import assert_laws, to_events

# Accepted at once


async def test_a_background_response_is_accepted_before_it_is_made(client, engine, pause):
    reply = await background(client).reply()

    assert (reply.status_code, reply.json["id"], reply.json["background"]) == (200, "resp_1", True)
    assert reply.json["status"] in {"queued", "in_progress"}
    assert reply.json["output"] == []
    assert not engine.decodings or engine.decodings[0].played < 2


async def test_it_is_in_the_store_before_its_client_hears_of_it(client, services, engine):
    engine.script = say("Hi")
    gate = Gate(services.store, "begin_job")
    call = background(client)
    await gate.asked.wait()

    assert not call.task.done()
    assert (await ask(client)).status_code == 404
    gate.opened.set()

    assert (await call.reply()).json["status"] in {"queued", "in_progress"}


async def test_it_can_be_fetched_as_it_stands_and_as_it_ended(client, services, pause, ended):
    accepted = await begun(client, pause)

    standing = await ask(client)
    pause.resume.set()
    await done(services)
    whole = await ask(client)

    assert standing.json == {**accepted.json, "status": "in_progress"}
    assert (whole.json["status"], whole.json["output"][0]["content"][0]["text"]) == ("completed", "One two")
    made = next(exchange for exchange in ended if exchange.job)
    assert [move.event for move in made.job.trace] == ["model_taken", "response_completed"]
    assert made.table is DURABLE
    assert services.jobs == {}


async def test_its_stream_is_that_of_any_response_but_begins_in_the_queue(client, engine):
    engine.script = say("One", " two")

    call = await background(client, stream=True).reply()

    events = to_events(call.text)
    assert_laws(events)
    assert [event["type"] for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert statuses(call) == ["queued", "queued", "in_progress", "completed"]


@BOTH
async def test_a_client_that_leaves_at_once_does_not_end_it(client, services, pause, stream):
    call = background(client, stream=stream)
    call.leave_on = b"resp_1"
    await call.reply()
    await pause.reached.wait()

    pause.resume.set()
    await done(services)

    assert (await ask(client)).json["status"] == "completed"


async def test_a_full_queue_refuses_it(client, services, engine):
    for _ in range(services.models[MODEL].slots.limit + 1):
        services.models[MODEL].slots.take()

    reply = await background(client).reply()

    assert (reply.status_code, reply.json["error"]["code"]) == (429, "queue_full")
    assert await services.store.unfinished_jobs() == []


@pytest.mark.parametrize("name", ["instructions", "metadata"])
async def test_what_was_asked_is_shown_from_the_first_to_the_last(client, services, pause, name):
    asked = {"instructions": "Be brief.", "metadata": {"topic": "herons"}}

    accepted = await begun(client, pause, **asked)
    pause.resume.set()
    await done(services)

    assert accepted.json[name] == (await ask(client)).json[name] == asked[name]


# Left while it is accepted


@pytest.mark.parametrize("end", ["leave", "drain"])
async def test_one_that_is_broken_off_while_it_is_accepted_leaves_nothing(client, services, ended, end):
    gate = Gate(services.store, "begin_job")
    call = background(client)
    await gate.asked.wait()

    if end == "leave":
        call.leave()
    else:
        client.app.begin_drain(0)
    await call.reply()
    gate.opened.set()
    (made,) = ended
    left = services.jobs["resp_1"]
    await until(lambda: not services.jobs)

    assert left is made
    assert made.state is (State.ABANDONED if end == "leave" else State.REFUSED)
    assert await services.store.unfinished_jobs() == []
    assert await services.store.job("resp_1", NOW) is None
    assert services.models[MODEL].slots.running == 0


async def test_a_store_that_takes_too_long_refuses_it_and_is_to_forget_it(client, services):
    services.settings = Settings(persist_wait_ms=1)
    gate = Gate(services.store, "begin_job")

    reply = await background(client).reply()
    gate.opened.set()
    await until(lambda: not services.jobs)

    assert (reply.status_code, reply.json["error"]["code"]) == (503, "storage_error")
    assert await services.store.unfinished_jobs() == []


# Readers


async def test_a_reader_comes_back_while_it_is_made_and_after_it_ended(client, services, pause):
    await begun(client, pause)
    early = reading(client, 2)
    await early.seen("response.output_text.delta")
    pause.resume.set()
    await early.reply()
    await done(services)
    late, whole = await reading(client, 2).reply(), await reading(client).reply()

    assert early.text == late.text
    assert whole.text.endswith(late.text)
    assert numbers(late)[0] == 3
    assert numbers(whole) == list(range(len(numbers(whole))))
    assert_laws(to_events(whole.text))


async def test_a_reader_ahead_of_the_model_is_told_what_comes_after_its_place(client, pause):
    await begun(client, pause)
    ahead = reading(client, 7)
    for _ in range(20):
        await asyncio.sleep(0)

    pause.resume.set()
    await ahead.reply()

    assert numbers(ahead)[0] == 8
    assert to_events(ahead.text)[-1]["type"] == "response.completed"


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_reader_who_has_seen_all_is_told_the_end_again(client, services, pause, is_over):
    await begun(client, pause)
    if is_over:
        pause.resume.set()
        await done(services)
    last = reading(client, 1000)
    pause.resume.set()
    await last.reply()

    assert [event["type"] for event in to_events(last.text)] == ["response.completed"]


async def test_readers_at_several_places_read_the_same(client, services, pause):
    await begun(client, pause)
    calls = [reading(client, after) for after in (None, -1, 0, 3, 5)]
    await calls[0].seen("response.output_text.delta")

    pause.resume.set()
    for call in calls:
        await call.reply()

    events = to_events(calls[0].text)
    assert [to_events(call.text) for call in calls] == [events, events, events[1:], events[4:], events[6:]]


async def test_a_reader_that_stands_still_holds_up_nobody(client, services, engine, monkeypatch):
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.01)
    engine.script = say(*["word"] * 100)
    slow = background(client, stream=True)
    slow.unread = asyncio.Semaphore(1)
    await slow.seen("response.created")
    also_slow = reading(client)
    also_slow.unread = asyncio.Semaphore(1)

    await done(services)

    assert (await ask(client)).json["status"] == "completed"
    also_slow.leave()
    also_slow.unread.release()
    await also_slow.reply()
    for _ in range(200):
        slow.unread.release()
    assert to_events((await slow.reply()).text)[-1]["type"] == "response.completed"


async def test_a_reader_that_leaves_is_no_longer_counted(client, services, pause):
    await begun(client, pause)
    journal = services.jobs["resp_1"].job.journal
    call = reading(client)
    await call.seen("response.output_text.delta")
    assert journal.readers == 1

    call.leave()
    await call.reply()
    await until(lambda: not journal.readers)

    pause.resume.set()
    await done(services)


async def test_a_reader_that_breaks_harms_no_other(client, services, pause, ended, monkeypatch):
    await begun(client, pause)
    other = reading(client)
    await other.seen("response.output_text.delta")
    first = to_data(Created(services.jobs["resp_1"].job.resource([])), 0).decode()

    async def break_off(*_):
        yield EventRow(response_id="resp_1", number=0, name="response.created", data=first)
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "read", break_off)
        await reading(client).reply()
    pause.resume.set()
    await other.reply()

    assert [(exchange.state, exchange.event) for exchange in ended[:1]] == [(State.FAILED, "crashed")]
    assert to_events(other.text)[-1]["type"] == "response.completed"


async def test_a_silent_one_beats_for_its_readers_and_for_nobody_else(client, services, engine):
    services.settings = Settings(heartbeat_seconds=0.001)
    pause = Pause()
    engine.script = [pause, *say("Hi")]
    held = services.models[MODEL].slots.take()
    await background(client).reply()
    journal = services.jobs["resp_1"].job.journal
    for _ in range(20):
        await asyncio.sleep(0.001)
    unheard = journal.count

    reader = reading(client)
    await reader.seen('"sequence_number":4')
    held.leave()
    await pause.reached.wait()
    await reader.seen('"status":"in_progress"')
    pause.resume.set()
    await reader.reply()

    events = to_events(reader.text)
    assert unheard == 2
    assert [event["type"] for event in events[:4]] == ["response.created", *["response.queued"] * 3]
    assert numbers(reader) == list(range(len(events)))


# Cancelled


@pytest.mark.parametrize("stage", ["queued", "decoding"])
async def test_a_cancel_ends_it_and_every_reader_is_told(client, services, engine, pause, ended, stage):
    held = services.models[MODEL].slots.take() if stage == "queued" else None
    call = background(client, stream=True)
    await call.seen("response.queued" if held else "response.output_text.delta")
    reader = reading(client, 0)

    cancelled = await ask(client, "POST", f"{JOB}/cancel")
    await call.reply()
    await reader.reply()
    again, fetched = await ask(client, "POST", f"{JOB}/cancel"), await ask(client)

    assert cancelled.json["status"] == "cancelled"
    assert cancelled.json == again.json == fetched.json == to_events(call.text)[-1]["response"]
    assert to_events(reader.text)[-1] == to_events(call.text)[-1]
    assert to_events(call.text)[-1]["type"] == "response.incomplete"
    assert to_events((await reading(client).reply()).text) == to_events(call.text)
    assert engine.cancelled == (0 if held else 1)
    assert services.models[MODEL].slots.running == (1 if held else 0)
    assert isinstance(await services.store.row("resp_1", NOW), Missing)
    assert "client_cancelled" in [move.event for exchange in ended if exchange.job for move in exchange.trace]


async def test_a_cancelled_one_shows_what_it_had(client, pause):
    await begun(client, pause)

    cancelled = await ask(client, "POST", f"{JOB}/cancel")

    (item,) = cancelled.json["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "One")


async def test_to_cancel_what_has_ended_gives_it_back(client, services, pause):
    await begun(client, pause)
    pause.resume.set()
    await done(services)

    cancelled, fetched = await ask(client, "POST", f"{JOB}/cancel"), await ask(client)

    assert (cancelled.status_code, cancelled.json["status"]) == (200, "completed")
    assert cancelled.text == fetched.text


async def test_a_cancel_that_comes_while_the_row_is_written_finds_it_completed(client, services, pause):
    puts = Gate(services.store, "put")
    await begun(client, pause)
    pause.resume.set()
    await puts.asked.wait()
    cancel = client.call("POST", f"{JOB}/cancel")
    for _ in range(20):
        await asyncio.sleep(0)

    standing = await ask(client)
    puts.opened.set()

    assert standing.json["status"] == "in_progress"
    assert (await cancel.reply()).json["status"] == "completed"


async def test_a_cancel_with_a_body_is_a_cancel(client, pause):
    await begun(client, pause)

    assert (await client.request("POST", f"{JOB}/cancel", b'{"reason": 1}')).json["status"] == "cancelled"


async def test_a_cancel_and_a_drain_at_once_give_one_end(client, services, pause):
    call = background(client, stream=True)
    await pause.reached.wait()
    cancel = client.call("POST", f"{JOB}/cancel")
    for _ in range(2):
        await asyncio.sleep(0)
    for exchange in list(services.exchanges):
        if exchange.job:
            exchange.interruption = None
    client.app.begin_drain(0)

    await call.reply()
    await cancel.reply()

    assert [event["type"] for event in to_events(call.text)].count("response.incomplete") <= 1
    assert sum(event["type"] in TERMINAL for event in to_events(call.text)) == 1


# However it ends


def break_clock(services, _engine):
    services.clock = None


def swap_model(services, _engine):
    services.models.is_current = lambda *_: False


def break_slots(services, _engine):
    services.models.is_current = None


def lose_row(services, _engine):
    services.store.put = fails


def break_write(services, _engine):
    services.writes.start = None


ENDS = {
    "decode_failed": lambda _, engine: setattr(engine, "script", [Text("One"), DecodeError("broken")]),
    "engine_died": lambda _, engine: setattr(engine, "script", [DecodeError("The engine was closed.")]),
    "stream_exhausted": lambda _, engine: setattr(engine, "script", [Text("One")]),
    "finish_error": lambda _, engine: setattr(engine, "script", [Text("One"), *stop("error")]),
    "decoding_crashed": lambda _, engine: setattr(engine, "script", [Text("One"), ZeroDivisionError()]),
    "model_swapped": swap_model,
    "holding_crashed": break_slots,
    "row_lost": lose_row,
    "writing_crashed": break_write,
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_failure_is_told_to_every_reader_and_kept(client, services, engine, ended, end):
    engine.script = say("One", " two")
    held = services.models[MODEL].slots.take()
    call = background(client, stream=True)
    await call.seen("response.queued")
    reader = reading(client)
    await reader.seen("response.queued")
    ENDS[end](services, engine)

    held.leave()
    await call.reply()
    await reader.reply()
    await calm(services)
    fetched, replayed = await ask(client), await reading(client).reply()

    last = to_events(call.text)[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert call.text == reader.text == replayed.text
    assert fetched.json == last["response"]
    assert (await services.store.job("resp_1", NOW)).status == "failed"
    assert next(exchange for exchange in ended if exchange.job).job.state is Job.FAILED
    assert isinstance(await services.store.row("resp_1", NOW), Missing)
    assert services.jobs == {}


async def test_an_answer_that_met_its_limit_is_incomplete(client, services, engine, ended):
    engine.script = say("One", reason="length")

    await background(client).reply()
    await done(services)

    assert (await ask(client)).json["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [exchange.job.state for exchange in ended if exchange.job] == [Job.INCOMPLETE]


@pytest.mark.parametrize("stage", ["queued", "decoding", "writing"])
async def test_a_server_that_stops_ends_it(client, services, engine, pause, stage):
    if stage == "queued":
        services.models[MODEL].slots.take()
    puts = Gate(services.store, "put")
    call = background(client, stream=True)
    await call.seen("response.queued")
    if stage != "queued":
        await pause.reached.wait()
    if stage == "writing":
        pause.resume.set()
        await puts.asked.wait()

    client.app.begin_drain(0)
    await call.reply()
    puts.opened.set()
    await calm(services)

    assert to_events(call.text)[-1]["response"]["error"]["message"] == "The server is stopping; retry."
    assert (await services.store.job("resp_1", NOW)).status == "failed"
    assert isinstance(await services.store.row("resp_1", NOW), Missing)


async def test_one_whose_task_is_cancelled_from_outside_ends_all_the_same(client, services, pause):
    call = background(client, stream=True)
    await pause.reached.wait()
    made = services.jobs["resp_1"]

    made.task.cancel()
    await call.reply()

    assert made.state is State.ABANDONED
    assert to_events(call.text)[-1]["response"]["error"]["code"] == "server_error"
    assert (await ask(client)).json["status"] == "failed"


async def test_an_end_that_cannot_be_made_is_another_one(client, services, pause, monkeypatch):
    call = background(client, stream=True)
    await pause.reached.wait()

    async def break_off(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("handlers.exchange.Exchange.deliver", break_off)
    pause.resume.set()
    await call.reply()

    assert to_events(call.text)[-1]["response"]["error"]["message"].startswith("The server failed on this response")
