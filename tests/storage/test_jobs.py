"""Jobs and their events in the database: begun, told, ended, read, deleted, swept."""

import msgspec
import pytest

from storage.errors import ReadError, WriteError
from storage.rows import EventRow, JobRow
from storage.store import open_store
from tests.storage.samples import row, trace

JOB = JobRow(id="resp_1", created_at=10, expires_at=100, status="queued", response_json='{"a": 1}', items_json="[]")
ENDED = msgspec.structs.replace(JOB, status="completed", response_json='{"a": 2}', expires_at=200)


def events(*numbers, job="resp_1"):
    return [EventRow(response_id=job, number=n, name="response.created", data=f'{{"n":{n},"ü":1}}') for n in numbers]


async def test_a_job_is_read_as_it_began_and_as_it_ended(store):
    await store.begin_job(JOB)
    begun = await store.job("resp_1", 50)

    await store.end_job(ENDED, events(0))

    assert begun == JOB
    assert await store.job("resp_1", 50) == ENDED
    assert await store.told("resp_1", -1) == events(0)


@pytest.mark.parametrize(("after", "left"), [(-1, [0, 1, 2]), (0, [1, 2]), (2, []), (9, [])])
async def test_events_are_read_in_order_beyond_a_number(store, after, left):
    await store.begin_job(JOB)
    await store.tell(events(2, 0))
    await store.tell(events(0, job="resp_2"))
    await store.tell(events(1))

    assert await store.told("resp_1", after) == events(*left)


async def test_a_job_begins_once(store):
    await store.begin_job(JOB)

    with pytest.raises(WriteError):
        await store.begin_job(JOB)


async def test_events_that_are_there_already_are_refused_as_a_whole(store):
    await store.tell(events(0))

    with pytest.raises(WriteError):
        await store.tell(events(1, 0))

    assert await store.told("resp_1", -1) == events(0)


async def test_an_end_and_its_events_are_written_together_or_not_at_all(store):
    await store.begin_job(JOB)
    await store.tell(events(0))

    with pytest.raises(WriteError):
        await store.end_job(ENDED, events(0))

    assert await store.job("resp_1", 50) == JOB
    await store.end_job(ENDED, [])
    assert await store.job("resp_1", 50) == ENDED


async def test_a_job_that_is_gone_does_not_end(store):
    await store.end_job(ENDED, events(0))

    assert await store.job("resp_1", 50) is None
    assert await store.told("resp_1", -1) == []


@pytest.mark.parametrize(("now", "is_there"), [(99, True), (100, False)])
async def test_a_job_is_read_until_it_expires(store, now, is_there):
    await store.begin_job(JOB)

    assert (await store.job("resp_1", now) is not None) is is_there


async def test_those_that_have_not_ended_are_listed_however_old(store):
    states = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    for number, status in enumerate(states):
        await store.begin_job(msgspec.structs.replace(JOB, id=f"resp_{number}", status=status, expires_at=1))

    assert sorted(job.status for job in await store.unfinished_jobs()) == ["in_progress", "queued"]


async def test_the_sweep_forgets_what_ended_and_expired_with_its_events_and_no_other(store):
    for name, job in {"old": ENDED, "young": ENDED, "under way": JOB}.items():
        await store.begin_job(msgspec.structs.replace(job, id=name, expires_at=400 if name == "young" else 200))
        await store.tell(events(0, job=name))
    await store.tell(events(0, job="nobody's"))

    await store.sweep(300)

    assert await store.job("young", 300) is not None
    assert [job.id for job in await store.unfinished_jobs()] == ["under way"]
    left = {name: len(await store.told(name, -1)) for name in ("old", "young", "under way", "nobody's")}
    assert left == {"old": 0, "young": 1, "under way": 1, "nobody's": 0}


async def test_more_than_one_portion_is_swept(store, monkeypatch):
    monkeypatch.setattr("storage.store.SWEPT_AT_ONCE", 2)
    for number in range(5):
        await store.begin_job(msgspec.structs.replace(ENDED, id=f"resp_{number}"))

    await store.sweep(300)

    assert [await store.job(f"resp_{number}", 0) for number in range(5)] == [None] * 5


async def test_a_delete_takes_the_row_the_job_its_events_and_the_link_of_its_trace(store):
    await store.put(row("resp_1"))
    await store.begin_job(JOB)
    await store.tell(events(0) + events(0, job="resp_2"))
    store.record(trace(response_id="resp_1"))

    assert await store.delete("resp_1") is True
    assert await store.delete("resp_1") is False

    links = store._database.connection.cursor().execute("SELECT response_id FROM exchanges").fetchall()
    assert links == [(None,)]
    assert await store.job("resp_1", 50) is None
    assert await store.told("resp_1", -1) == []
    assert await store.told("resp_2", -1) == events(0, job="resp_2")


async def test_a_job_without_a_row_can_be_deleted(store):
    await store.begin_job(JOB)

    assert await store.delete("resp_1") is True


async def test_to_withdraw_a_row_leaves_its_job(store):
    await store.put(row("resp_1"))
    await store.begin_job(JOB)

    assert await store.withdraw("resp_1") is True
    assert await store.withdraw("resp_1") is False
    assert await store.job("resp_1", 50) == JOB


@pytest.mark.parametrize("call", ["begin_job", "tell", "end_job"])
async def test_a_closed_store_refuses_to_write(store, call):
    given = {"begin_job": [JOB], "tell": [events(0)], "end_job": [ENDED, events(0)]}
    await store.close()

    with pytest.raises(WriteError):
        await getattr(store, call)(*given[call])


@pytest.mark.parametrize(("call", "given"), [("job", ["resp_1", 0]), ("told", ["resp_1", 0]), ("unfinished_jobs", [])])
async def test_a_closed_store_refuses_to_read(store, call, given):
    await store.close()

    with pytest.raises(ReadError):
        await getattr(store, call)(*given)


async def test_jobs_and_events_are_found_again(tmp_path):
    path = str(tmp_path / "responses.duckdb")
    store = open_store(path)
    await store.begin_job(JOB)
    await store.end_job(ENDED, events(0, 1))
    await store.close()

    again = open_store(path)

    assert await again.job("resp_1", 50) == ENDED
    assert await again.told("resp_1", 0) == events(1)
    await again.close()
