"""Traces are written when the writer has nothing better to do, and never keep anyone waiting."""

import asyncio
import threading

import duckdb
import pytest

from storage import writer as module
from storage.errors import ReadError
from storage.queries import insert, to_row
from storage.rows import ExchangeRow, Missing, TraceQuery
from storage.store import open_store
from storage.traces import TRACE_COLUMNS, TraceWriter
from tests.storage.samples import moved, row, trace

FIELDS = ExchangeRow.__struct_fields__


def kept(store):
    found = store._database.connection.execute(f"SELECT {TRACE_COLUMNS} FROM traces ORDER BY length(id), id").fetchall()  # noqa: S608
    return [to_row(ExchangeRow, values) for values in found]


@pytest.fixture
def gate(monkeypatch):
    """Holds the writer at its first insert until opened; `groups` lists what each insert held."""
    gate = threading.Event()
    gate.reached = threading.Event()
    gate.groups = []

    def gated(insert):
        def held(owner, rows):
            gate.reached.set()
            gate.wait()
            gate.groups.append([one.id for one in rows])
            insert(owner, rows)

        return held

    monkeypatch.setattr(module, "insert", gated(insert))
    monkeypatch.setattr(TraceWriter, "insert", gated(TraceWriter.insert))
    yield gate
    gate.set()


async def test_a_trace_comes_back_as_it_was_and_outlives_a_restart(file):
    refused = trace("ex_2", status=None, model=None, response_id=None, path="/v1/\N{SNOWMAN}")
    store = open_store(str(file))
    store.record(trace())
    store.record(refused)
    await store.close()

    store = open_store(str(file))

    assert kept(store) == [trace(), refused]
    assert store.dropped_traces == 0
    await store.close()


async def test_what_traces_share_is_written_once_also_after_a_restart_or_a_failure(file):
    for number in range(3):
        store = open_store(str(file))
        store.record(trace(f"ex_{number}"))
        store.record(trace(f"ex_{number}_bad", path="/\ud800"))
        await store.sweep(now=0)
        store.record(trace(f"ex_{number}_late", status=None, model=None, event=f"event_{number}"))
        await store.close()
        assert store.dropped_traces == 1

    with duckdb.connect(str(file)) as connection:
        kinds = connection.execute("SELECT number, event FROM kinds ORDER BY number").fetchall()
        exchanges = connection.execute("SELECT id, kind FROM exchanges ORDER BY id").fetchall()
    assert kinds == [(1, "row_written"), (2, "event_0"), (3, "event_1"), (4, "event_2")]
    assert exchanges == [("ex_0", 1), ("ex_0_late", 2), ("ex_1", 1), ("ex_1_late", 3), ("ex_2", 1), ("ex_2_late", 4)]


async def test_traces_that_wait_together_are_written_together(store, gate):
    putting = asyncio.ensure_future(store.put(row()))
    await asyncio.sleep(0)
    for number in range(30):
        store.record(trace(f"ex_{number}"))

    gate.set()
    await putting
    await store.sweep(now=0)

    assert len(kept(store)) == 30
    assert len(gate.groups) <= 4


async def test_traces_are_gathered_though_the_writer_has_nothing_else_to_do(store, gate, monkeypatch):
    monkeypatch.setattr(module, "GATHERING", 1000)
    gate.set()

    for number in range(5):
        store.record(trace(f"ex_{number}"))
        await store.put(row(f"resp_{number}"))
    await store.sweep(now=0)

    assert gate.groups[5:] == [[f"ex_{number}" for number in range(5)]]


async def test_rows_go_before_the_traces_that_came_before_them(store, gate):
    putting = [asyncio.ensure_future(store.put(row("resp_0")))]
    await asyncio.sleep(0)
    for number in range(1, 20):
        store.record(trace(f"ex_{number}"))
        putting.append(asyncio.ensure_future(store.put(row(f"resp_{number}"))))
        await asyncio.sleep(0)

    gate.set()
    await asyncio.gather(*putting)

    assert [one for group in gate.groups for one in group][:20] == [f"resp_{number}" for number in range(20)]


async def test_rows_that_keep_coming_do_not_hold_traces_back_for_ever(store, gate, monkeypatch):
    monkeypatch.setattr(module, "GROUP_TRACES", 100)
    putting = []
    for number in range(3 * module.GROUP_ROWS):
        putting.append(asyncio.ensure_future(store.put(row(f"resp_{number}"))))
        store.record(trace(f"ex_{number}"))
    await asyncio.sleep(0)

    gate.set()
    await asyncio.gather(*putting)

    first_trace = next(place for place, group in enumerate(gate.groups) if group[0].startswith("ex_"))
    assert first_trace < len(gate.groups) - 1
    assert max(len(group) for group in gate.groups) <= module.GROUP_TRACES


async def test_no_more_traces_wait_than_the_bound_and_the_rest_is_dropped_and_counted(store, gate):
    store.record(trace("first"))
    await asyncio.to_thread(gate.reached.wait)
    for number in range(module.TRACES_WAITING + 5):
        store.record(trace(f"ex_{number}"))

    assert store.dropped_traces == 5

    gate.set()
    await store.sweep(now=0)
    assert len(kept(store)) == module.TRACES_WAITING + 1

    store.record(trace("later"))
    await store.sweep(now=0)
    assert "later" in {one.id for one in kept(store)}
    assert store.dropped_traces == 5


async def test_a_trace_the_database_cannot_hold_is_dropped_alone_and_rows_go_on(store, gate, caplog):
    store.record(trace("ex_1"))
    store.record(trace("ex_2", path="/\ud800"))
    store.record(trace("ex_3"))

    gate.set()
    await store.put(row())
    await store.sweep(now=0)

    assert [one.id for one in kept(store)] == ["ex_1", "ex_3"]
    assert store.dropped_traces == 1
    assert caplog.messages == ["1 traces could not be written; what broke the first:"]
    assert "cannot encode str as UTF-8" in caplog.text


async def test_of_many_traces_only_those_that_cannot_be_held_are_dropped(store, gate):
    gate.set()
    for number in range(300):
        store.record(trace(f"ex_{number}", path="/\ud800" if number in {7, 250} else "/v1/responses"))
    await store.sweep(now=0)

    assert len(kept(store)) == 298
    assert store.dropped_traces == 2
    assert len(gate.groups) < 40  # each try is a statement, and rows wait for it


async def test_recording_is_never_refused_and_never_waits(file):
    store = open_store(str(file))
    await store.close()

    store.record(trace())

    assert store.dropped_traces == 1
    with duckdb.connect(str(file)) as connection:
        assert connection.execute("SELECT count(*) FROM exchanges").fetchone() == (0,)


async def test_closing_writes_the_traces_that_wait(file, gate):
    store = open_store(str(file))
    for number in range(250):
        store.record(trace(f"ex_{number}"))

    gate.set()
    await store.close()

    store = open_store(str(file))
    assert len(kept(store)) == 250
    await store.close()


async def test_a_trace_may_be_recorded_without_a_loop(file):
    store = open_store(str(file))

    await asyncio.to_thread(store.record, trace())
    await store.close()

    assert store.dropped_traces == 0


async def test_sweeping_deletes_traces_after_their_own_retention(store):
    await store.put(row(expires_at=5000))
    for ended_at in (899, 900, 1000):
        store.record(trace(f"ex_{ended_at}", ended_at=ended_at))

    assert await store.sweep(now=1000, trace_retention=100) == 0

    assert [one.ended_at for one in kept(store)] == [900, 1000]
    await store.sweep(now=1001, trace_retention=0)
    assert kept(store) == []


def test_a_trace_has_what_it_shares_also_after_a_deletion_that_broke_once_it_was_done(file):
    class Cursor:
        def execute(self, statement):
            cursor.execute(statement).fetchall()
            raise MemoryError

    store = open_store(str(file))
    cursor = store._database.connection.cursor()
    writer = TraceWriter(cursor)
    writer.insert([trace("ex_1")])
    cursor.execute("TRUNCATE exchanges")
    writer._cursor = Cursor()
    with pytest.raises(MemoryError):
        writer.forget(cursor)
    writer._cursor = cursor
    writer.insert([trace("ex_2")])

    assert [one.id for one in kept(store)] == ["ex_2"]
    cursor.close()
    store.close_now()


async def test_what_traces_shared_goes_with_the_last_of_them(store):
    store.record(trace("ex_1", ended_at=1000, model="gone"))
    store.record(trace("ex_2", ended_at=2000, model="here"))

    await store.sweep(now=2000, trace_retention=100)
    models = store._database.connection.execute("SELECT model FROM kinds").fetchall()
    store.record(trace("ex_3", ended_at=2000, model="gone"))
    store.record(trace("ex_4", ended_at=2000, model="here"))
    await store.sweep(now=2000, trace_retention=100)

    assert models == [("here",)]
    assert [(one.id, one.model) for one in kept(store)] == [("ex_2", "here"), ("ex_3", "gone"), ("ex_4", "here")]


def test_a_trace_has_no_place_for_content():
    assert FIELDS == (
        "id", "ended_at", "machine", "method", "path", "state", "event", "status", "model", "response_id", "moves",
        "ms", "facts",
    )  # fmt: skip


async def test_traces_that_are_written_together_keep_their_own_times(store):
    moves = [
        ("route_found", "ROUTING", "VALIDATING", 0.0004),
        ("crashed", "VALIDATING", "FAILING", 1.0006),
        ("x", "A", "B", 7e6),
    ]
    for count in (3, 0, 1, 2):
        store.record(trace(f"ex_{count}", **moved(*moves[:count])))

    assert {one.id: one.ms for one in await store.traces(TraceQuery())} == {
        "ex_0": (), "ex_1": (0.0,), "ex_2": (0.0, 1.001), "ex_3": (0.0, 1.001, 7e6),
    }  # fmt: skip


async def test_a_trace_is_read_by_the_id_of_its_exchange(file):
    store = open_store(str(file))
    store.record(trace("ex_1", ended_at=1_750_000_000.123, response_id=None))
    store.record(trace("ex_2"))

    assert await store.trace("ex_1") == trace("ex_1", ended_at=1_750_000_000.123, response_id=None)
    assert await store.trace("resp_1") is None

    await store.close()
    with pytest.raises(ReadError):
        await store.trace("ex_1")


async def pages(store, limit, **asked):
    """Read all there is, page by page, each after the last of the one before."""
    found, after = [], None
    while page := await store.traces(TraceQuery(limit=limit, after=after, **asked)):
        assert len(page) <= limit
        found += [one.id for one in page]
        after = found[-1]
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_show_every_trace_once_and_the_newest_first_though_many_ended_at_one_time(store, limit):
    ended = {"a": 10, "b": 20.5, "c": 20.5, "d": 20.5, "e": 20.25, "f": 30, "g": 20.5}
    for exchange_id, at in ended.items():
        store.record(trace(exchange_id, ended_at=at))

    assert await pages(store, limit) == ["f", "g", "d", "c", "b", "e", "a"]


async def test_traces_that_come_meanwhile_move_no_page(store):
    for number in range(4):
        store.record(trace(f"ex_{number}", ended_at=number))
    first = await store.traces(TraceQuery(limit=2))

    store.record(trace("ex_new", ended_at=9))
    rest = await store.traces(TraceQuery(limit=2, after=first[-1].id))

    assert [one.id for one in (*first, *rest)] == ["ex_3", "ex_2", "ex_1", "ex_0"]


async def test_a_page_makes_nothing_of_the_times_of_traces_that_are_not_on_it(store):
    store.record(trace("ex_1", ended_at=1))
    store.record(trace("ex_2", ended_at=2))
    await store.traces(TraceQuery())
    store._database.connection.execute("UPDATE exchanges SET micros = 'broken' WHERE id = 'ex_1'")

    assert [one.id for one in await store.traces(TraceQuery(limit=1))] == ["ex_2"]
    with pytest.raises(ReadError):
        await store.traces(TraceQuery(limit=2))


async def test_a_page_after_a_trace_that_is_gone_is_missing(store):
    store.record(trace("ex_1", ended_at=10))

    assert isinstance(await store.traces(TraceQuery(after="ex_2")), Missing)
    await store.sweep(now=100, trace_retention=50)
    assert isinstance(await store.traces(TraceQuery(after="ex_1")), Missing)


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, ["ex_3", "ex_2", "ex_1"]),
        ({"event": "queue_full"}, ["ex_2"]),
        ({"event": "heartbeat_due"}, ["ex_3"]),
        ({"event": "route_found"}, ["ex_3", "ex_2", "ex_1"]),
        ({"event": "QUEUED"}, []),
        ({"event": "queue"}, []),
        ({"state": "DONE"}, ["ex_3", "ex_1"]),
        ({"status": 429}, ["ex_2"]),
        ({"model": "large"}, ["ex_3"]),
        ({"model": "%"}, []),
        ({"response_id": "resp_1"}, ["ex_1"]),
        ({"since": 20}, ["ex_3", "ex_2"]),
        ({"until": 20}, ["ex_2", "ex_1"]),
        ({"since": 10.5, "until": 29.5}, ["ex_2"]),
        ({"state": "DONE", "model": "tiny"}, ["ex_1"]),
        ({"state": "DONE", "status": 429}, []),
        ({"state": "DONE", "after": "ex_3"}, ["ex_1"]),
    ],
)
async def test_traces_are_picked_by_all_that_is_asked_together(store, asked, ids):
    route, full = ("route_found", "ROUTING", "VALIDATING", 0.1), ("queue_full", "QUEUED", "REFUSED", 0.0)
    held = ("heartbeat_due", "QUEUED", "HELD", 10000.0)
    store.record(trace("ex_1", ended_at=10))
    store.record(
        trace("ex_2", ended_at=20, state="REFUSED", event="queue_full", status=429, response_id="resp_2",
              **moved(route, full))
    )  # fmt: skip
    store.record(trace("ex_3", ended_at=30, model="large", response_id=None, **moved(route, held)))

    assert [one.id for one in await store.traces(TraceQuery(**asked))] == ids


async def test_a_writer_that_hangs_keeps_nobody_from_the_traces_that_are_written(store, gate, monkeypatch):
    monkeypatch.setattr("storage.store.GATHERED_SECONDS", 0.01)
    gate.set()
    store.record(trace("ex_1"))
    await store.sweep(now=0)
    gate.clear()
    gate.reached.clear()
    putting = asyncio.ensure_future(store.put(row()))
    await asyncio.to_thread(gate.reached.wait)
    store.record(trace("ex_2"))

    found = [one.id for one in await store.traces(TraceQuery())]

    assert found == ["ex_1"]
    gate.set()
    await putting
    await store.sweep(now=0)
    assert {one.id for one in await store.traces(TraceQuery())} == {"ex_1", "ex_2"}


async def test_a_deleted_response_leaves_its_trace_without_its_link(store):
    store.record(trace("ex_1"))
    store.record(trace("ex_2", response_id="resp_2"))

    await store.delete("resp_1")

    assert [(one.id, one.response_id) for one in await store.traces(TraceQuery())] == [
        ("ex_2", "resp_2"), ("ex_1", None),
    ]  # fmt: skip
    assert await store.traces(TraceQuery(response_id="resp_1")) == []
