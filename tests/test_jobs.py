"""Background responses: accepted at once, made whoever looks, read from any place, ended whatever happens."""

import asyncio

import msgspec
import pytest

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause, ScriptedEngine, stop
from handlers.app import create_app
from handlers.journal import Journal
from handlers.recovery import ERROR
from handlers.settings import Settings
from machines.exchange import DURABLE, State
from machines.job import State as Job
from storage.errors import ReadError, WriteError
from storage.rows import EventRow, JobRow, Missing
from storage.store import open_store
from tests.asgi import running
from tests.doubles import MODEL, NOW, hold, say, to_services, watch
from tests.sequences.laws import assert_laws, to_events
from tests.test_durable import Gate, calm

JOB = "/v1/responses/resp_1"
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
BOTH = pytest.mark.parametrize("stream", [False, True])


def fails(*_):
    raise WriteError("disk full")


def background(client, **body):
    return client.start(input="Hello", background=True, **body)


def ask(client, method="GET", path=JOB):
    return client.request(method, path)


def reading(client, after=None):
    return client.call("GET", f"{JOB}?stream=true" + ("" if after is None else f"&starting_after={after}"))


def numbers(call):
    return [event["sequence_number"] for event in to_events(call.text)]


def statuses(call):
    return [event["response"]["status"] for event in to_events(call.text) if "response" in event]


async def until(holds):
    while not holds():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def done(services):
    """Wait until no job is under way or waits for the store."""
    await calm(services)
    for exchange in list(services.jobs.values()):
        if exchange.job:
            await exchange.job.keep()


@pytest.fixture
def pause(engine) -> Pause:
    """Make the model stop after its first token."""
    pause = Pause()
    engine.script = [Text("One"), pause, *say(" two", prompt_tokens=7)]
    return pause


async def begun(client, pause, **body):
    """Have a job under way, after its first token; gives the accepted response."""
    reply = await background(client, **body).reply()
    await pause.reached.wait()
    return reply


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

    async def break_off(*_):
        yield EventRow(response_id="resp_1", number=0, name="response.created", data="{}")
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


# The store breaks


@pytest.mark.parametrize("broken", [WriteError, ZeroDivisionError])
async def test_a_job_that_cannot_be_stored_is_refused(client, services, broken):
    def break_off(*_):
        raise broken

    services.store.begin_job = break_off

    reply = await background(client).reply()

    assert reply.status_code == (503 if broken is WriteError else 500)
    assert services.jobs == {}


@pytest.mark.parametrize("broken", [WriteError, ZeroDivisionError])
async def test_events_that_could_not_be_stored_are_stored_with_later_ones(client, services, pause, broken):
    tell = services.store.tell

    async def break_off(*_):
        raise broken

    services.store.tell = break_off
    call = background(client, stream=True)
    await pause.reached.wait()
    services.store.tell = tell
    services.jobs["resp_1"].job.journal._commit = tell
    pause.resume.set()
    await call.reply()
    await done(services)

    assert_laws(to_events(call.text))
    assert (await reading(client).reply()).text == call.text


async def test_a_reader_is_told_only_what_is_stored(client, services, pause):
    tells = Gate(services.store, "tell")
    call = background(client, stream=True)
    await tells.asked.wait()
    await pause.reached.wait()
    assert call.text == ""
    assert await services.store.told("resp_1", -1) == []

    tells.opened.set()
    pause.resume.set()

    assert_laws(to_events((await call.reply()).text))


async def ends_unstored(client, services, pause):
    """End a job that the store does not take; gives the stream of its reader."""
    services.settings = Settings(persist_wait_ms=50)
    services.jobs.clear()
    call = background(client, stream=True)
    await pause.reached.wait()
    pause.resume.set()
    await call.reply()
    await calm(services)
    return call


@pytest.mark.parametrize("is_silent", [False, True])
async def test_an_end_that_could_not_be_stored_is_told_and_kept_in_memory(client, services, pause, is_silent):
    end_job = services.store.end_job
    if is_silent:
        hold(services.store, "end_job")
    else:
        services.store.end_job = fails

    call = await ends_unstored(client, services, pause)
    fetched, replayed = await ask(client), await reading(client).reply()
    job = services.jobs["resp_1"].job

    assert to_events(call.text)[-1]["type"] == "response.completed"
    assert fetched.json == to_events(call.text)[-1]["response"]
    assert replayed.text == call.text
    assert (await services.store.job("resp_1", NOW)).status == "queued"
    services.store.end_job = end_job
    if is_silent:
        job._ending.cancel()
        await asyncio.wait([job._ending])
    await job.keep()
    assert services.jobs == {}
    assert (await ask(client)).text == fetched.text
    assert (await reading(client).reply()).text == call.text


async def test_the_sweep_stores_an_end_that_could_not_be(engine, store, pause):
    end_job, store.end_job = store.end_job, fails
    services = to_services(engine, store, Settings(sweep_seconds=0.01))
    async with running(create_app(services)) as client:
        await ends_unstored(client, services, pause)
        store.end_job = end_job
        await until(lambda: not services.jobs)

        assert (await store.job("resp_1", NOW)).status == "completed"


async def test_too_many_ends_that_could_not_be_stored_are_given_up(client, services, engine, monkeypatch):
    monkeypatch.setattr("handlers.steps.JOBS_KEPT", 1)
    end_job, services.store.end_job = services.store.end_job, fails
    engine.script = say("Hi")
    for _ in range(2):
        await background(client).reply()
        await calm(services)
    assert list(services.jobs) == ["resp_2"]

    services.store.end_job = end_job
    fetched, replayed = await ask(client), await reading(client).reply()

    # its row was stored, so that is what it came to
    assert (fetched.json["status"], statuses(replayed)[-1]) == ("completed", "completed")


async def test_a_store_that_is_closed_meanwhile_keeps_no_reader_waiting(engine, pause):
    store = open_store(":memory:")
    services = to_services(engine, store)
    async with running(create_app(services)) as client:
        call = background(client, stream=True)
        await pause.reached.wait()
        await store.close()
        pause.resume.set()
        await call.reply()

    assert to_events(call.text)[-1]["response"]["error"]["message"].startswith("The response could not be stored")


@pytest.mark.parametrize("broken", ["job", "told"])
async def test_a_job_that_cannot_be_read_is_a_500_and_no_empty_stream(client, services, pause, broken):
    async def break_off(*_):
        raise ReadError

    await begun(client, pause)
    pause.resume.set()
    await done(services)
    setattr(services.store, broken, break_off)

    reply = await reading(client).reply()

    assert (reply.status_code, reply.json["error"]["param"]) == (500, "response_id")


# Deleted


async def test_a_job_that_is_deleted_is_cancelled_first(client, services, engine, pause):
    call = background(client, stream=True)
    await pause.reached.wait()

    deleted = await ask(client, "DELETE")
    await call.reply()

    assert deleted.json == {"id": "resp_1", "object": "response.deleted", "deleted": True}
    assert to_events(call.text)[-1]["response"]["status"] == "cancelled"
    assert (await ask(client)).status_code == 404
    assert (await reading(client).reply()).status_code == 404
    assert await services.store.told("resp_1", -1) == []
    assert services.jobs == {}


async def test_a_job_that_is_deleted_while_its_row_is_written_leaves_nothing(client, services, pause):
    puts = Gate(services.store, "put")
    await begun(client, pause)
    pause.resume.set()
    await puts.asked.wait()
    delete = client.call("DELETE", JOB)
    for _ in range(20):
        await asyncio.sleep(0)

    puts.opened.set()
    await delete.reply()
    await done(services)

    assert delete.status_code == 200
    assert isinstance(await services.store.row("resp_1", NOW), Missing)
    assert await services.store.job("resp_1", NOW) is None


async def test_of_two_deletes_one_finds_it(client, pause):
    await begun(client, pause)

    calls = [client.call("DELETE", JOB) for _ in range(2)]

    assert sorted([(await call.reply()).status_code for call in calls]) == [200, 404]


async def test_a_deleted_job_whose_end_was_not_stored_does_not_come_back(client, services, pause):
    end_job, services.store.end_job = services.store.end_job, fails
    await ends_unstored(client, services, pause)
    job = services.jobs["resp_1"].job
    services.store.end_job = end_job

    assert (await ask(client, "DELETE")).status_code == 200
    await job.keep()

    assert await services.store.job("resp_1", NOW) is None
    assert await services.store.told("resp_1", -1) == []


# Continued


async def test_it_can_be_continued_as_soon_as_its_end_was_told(client, services, engine, pause):
    call = background(client, stream=True)
    await pause.reached.wait()
    pause.resume.set()
    await call.seen("response.completed")
    engine.script = say("Yes.")

    reply = await client.post(input="And?", previous_response_id="resp_1")

    assert reply.json["previous_response_id"] == "resp_1"
    assert [turn["content"] for turn in engine.conversations[-1]] == ["Hello", "One two", "And?"]


async def test_one_under_way_cannot_be_continued_yet(client, pause):
    await begun(client, pause)

    reply = await client.post(input="And?", previous_response_id="resp_1")

    assert (reply.status_code, reply.json["error"]["code"]) == (503, "response_in_progress")


async def test_one_that_was_cancelled_cannot_be_continued(client, pause):
    await begun(client, pause)
    await ask(client, "POST", f"{JOB}/cancel")

    reply = await client.post(input="And?", previous_response_id="resp_1")

    assert (reply.status_code, reply.json["error"]["code"]) == (404, "previous_response_not_found")


# After a restart


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "responses.duckdb")


async def restarted(file, ask_it):
    store = open_store(file, patience=10)
    services = to_services(ScriptedEngine(say("Yes.")), store)
    async with running(create_app(services)) as client:
        return await ask_it(client, services)


async def test_what_had_ended_is_read_again_after_a_restart(file, engine):
    engine.script = say("One", " two")
    async with running(create_app(to_services(engine, open_store(file)))) as client:
        call = await background(client, stream=True).reply()

    async def ask_again(client, _):
        return [await reading(client).reply(), await reading(client, 5).reply(), await ask(client)]

    whole, part, fetched = await restarted(file, ask_again)
    assert whole.text == call.text
    assert call.text.endswith(part.text)
    assert numbers(part)[0] == 6
    assert fetched.json == to_events(call.text)[-1]["response"]


def to_job(**changes):
    given = {"id": "resp_1", "status": "queued", "model": MODEL, "output": []}
    row = JobRow(
        id="resp_1", created_at=NOW - 10, expires_at=NOW + 90, status="queued",
        response_json=msgspec.json.encode(given).decode(), items_json="[]",
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


EVENTS = [
    EventRow(response_id="resp_1", number=number, name=name, data=f'{{"sequence_number":{number}}}')
    for number, name in enumerate(["response.created", "response.queued"])
]


@pytest.mark.parametrize("status", ["queued", "in_progress"])
@pytest.mark.parametrize("events", [[], EVENTS])
async def test_one_that_a_crash_left_under_way_has_failed(file, status, events):
    store = open_store(file)
    await store.begin_job(to_job(status=status))
    if events:
        await store.tell(events)
    await store.close()

    async def ask_again(client, services):
        return await ask(client), await reading(client).reply(), await services.store.unfinished_jobs()

    fetched, replayed, unfinished = await restarted(file, ask_again)
    assert (fetched.json["status"], fetched.json["error"]) == ("failed", ERROR)
    assert replayed.text.count("event: ") == len(events) + 1
    last = msgspec.json.decode(replayed.text.split("data: ")[-2].strip())
    assert (last["type"], last["sequence_number"]) == ("response.failed", len(events))
    assert unfinished == []


async def test_one_whose_row_was_written_before_the_crash_has_ended_as_its_row_says(file, engine):
    engine.script = say("One", " two")
    store = open_store(file)
    store.end_job = fails
    async with running(create_app(to_services(engine, store))) as client:
        call = await background(client, stream=True).reply()

    async def ask_again(client, _):
        return await ask(client), await reading(client).reply()

    fetched, replayed = await restarted(file, ask_again)
    assert fetched.json["status"] == "completed"
    assert fetched.json == to_events(call.text)[-1]["response"]
    assert statuses(replayed)[-1] == "completed"


async def test_one_that_was_left_is_ended_by_whoever_asks_for_it(client, services):
    await services.store.begin_job(to_job())

    replayed, fetched = await reading(client).reply(), await ask(client)

    assert statuses(replayed) == ["failed"]
    assert fetched.json["status"] == "failed"


async def test_one_that_was_left_and_cannot_be_ended_is_a_503(client, services):
    await services.store.begin_job(to_job())
    services.store.end_job = fails

    assert (await ask(client)).status_code == 503


async def test_a_damaged_job_does_not_keep_the_server_from_its_start(engine, store, caplog):
    await store.begin_job(to_job(response_json="{"))
    await store.begin_job(to_job(id="resp_2"))

    async with running(create_app(to_services(engine, store))):
        assert [job.id for job in await store.unfinished_jobs()] == ["resp_1"]

    assert "resp_1 was left under way and could not be ended" in caplog.text


async def test_jobs_that_cannot_be_read_do_not_keep_the_server_from_its_start(engine, store):
    async def break_off():
        raise ReadError

    store.unfinished_jobs = break_off

    async with running(create_app(to_services(engine, store))) as client:
        assert (await client.request("GET", "/health")).status_code == 200


async def test_the_sweep_leaves_a_job_that_is_being_made_alone(engine, store, pause):
    services = to_services(engine, store, Settings(sweep_seconds=0.001))
    swept = watch(store, "unfinished_jobs")
    async with running(create_app(services)) as client:
        await begun(client, pause)
        swept.clear()
        await swept.wait()
        await asyncio.sleep(0)
        pause.resume.set()
        await done(services)

        assert (await ask(client)).json["status"] == "completed"


# Kept for its time


async def test_a_job_is_kept_from_its_end_on_and_then_forgotten(client, services, pause):
    await begun(client, pause, metadata={"retention_seconds": 60})
    services.clock = lambda: NOW + 100
    await services.store.sweep(NOW + 100)
    assert (await ask(client)).status_code == 200

    pause.resume.set()
    await done(services)
    services.clock = lambda: NOW + 150
    assert (await ask(client)).json["status"] == "completed"
    services.clock = lambda: NOW + 161
    assert (await ask(client)).status_code == 404

    await services.store.sweep(NOW + 161)
    assert await services.store.told("resp_1", -1) == []
