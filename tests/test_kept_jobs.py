"""Background responses and their store: it breaks, is closed, forgets, and is opened again."""

import asyncio

import msgspec
import pytest

from engine.scripted import ScriptedEngine
from handlers.app import create_app
from handlers.mapping.to_response import Ending, Head, to_response
from handlers.recovery import ERROR
from handlers.settings import Settings
from handlers.wire.events import Created, Queued
from handlers.wire.request import CreateResponse
from handlers.wire.sse import to_data, to_name
from storage.errors import ReadError, WriteError
from storage.rows import EventRow, JobRow, Missing
from storage.store import open_store
from tests.asgi import running
from tests.doubles import MODEL, NOW, hold, say, to_services, watch
from tests.durable import Gate, calm, fails
from tests.jobs import JOB, ask, background, begun, done, numbers, reading, statuses, until
from tests.sequences.laws import assert_laws, to_events

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


HEAD = Head(
    id="resp_1",
    created_at=NOW - 10,
    instructions=None,
    request=CreateResponse(model=MODEL, background=True),
    store=True,
)
BEGUN = to_response(HEAD, Ending(status="queued"))


def to_job(**changes):
    row = JobRow(
        id="resp_1", created_at=NOW - 10, expires_at=NOW + 90, status="queued",
        response_json=msgspec.json.encode(BEGUN).decode(), items_json="[]",
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


EVENTS = [
    EventRow(response_id="resp_1", number=number, name=to_name(event), data=to_data(event, number).decode())
    for number, event in enumerate([Created(BEGUN), Queued(BEGUN)])
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
