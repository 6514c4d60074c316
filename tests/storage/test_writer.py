import asyncio
import threading

import duckdb
import pytest

from storage import writer as module
from storage.errors import WriteError
from storage.migrations import migrate
from storage.queries import insert
from storage.writer import Writer
from tests.storage.samples import row


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        migrate(connection)
        yield connection


@pytest.fixture
def gate(monkeypatch):
    """Holds the writer at its first commit until opened; `groups` lists the size of each group tried."""
    gate = threading.Event()
    gate.groups = []

    def gated(cursor, rows):
        gate.wait()
        gate.groups.append(len(rows))
        insert(cursor, rows)

    monkeypatch.setattr(module, "insert", gated)
    yield gate
    gate.set()


@pytest.fixture
def writer(connection, gate):
    writer = Writer(connection.cursor())
    yield writer
    gate.set()
    writer.close()


def ids(connection):
    return [found for (found,) in connection.execute("SELECT id FROM responses ORDER BY id").fetchall()]


async def test_rows_that_wait_together_are_committed_together(writer, gate):
    puts = [writer.put(row(f"resp_{number}")) for number in range(250)]

    gate.set()
    await asyncio.gather(*puts)

    assert sum(gate.groups) == 250
    assert max(gate.groups) == module.GROUP_ROWS
    assert len(gate.groups) <= 4


@pytest.fixture
def paced(connection, gate):
    gate.set()
    writer = Writer(connection.cursor(), pace=3600)
    yield writer
    writer.close()


async def test_rows_that_come_soon_after_a_commit_are_gathered_until_other_work_comes(paced, gate):
    await paced.put(row("resp_0"))
    puts = [paced.put(row(f"resp_{number}")) for number in range(1, 4)]

    await paced.do(lambda _: 0, "nothing")
    await asyncio.gather(*puts)

    assert gate.groups == [1, 3]


async def test_rows_that_are_gathered_are_committed_once_there_are_many(paced, gate):
    await paced.put(row("resp_0"))

    await asyncio.gather(*(paced.put(row(f"resp_{number}")) for number in range(1, module.GROUP_ROWS + 1)))

    assert gate.groups == [1, module.GROUP_ROWS]


async def test_rows_that_are_gathered_are_committed_before_the_writer_ends(connection, paced, gate):
    await paced.put(row("resp_0"))
    put = paced.put(row("resp_1"))

    paced.close()

    await put
    assert ids(connection) == ["resp_0", "resp_1"]


async def test_large_rows_are_not_gathered(writer, gate):
    puts = [writer.put(row(f"resp_{number}", input_json="x" * module.GROUP_CHARACTERS)) for number in range(3)]

    gate.set()
    await asyncio.gather(*puts)

    assert gate.groups == [1, 1, 1]


async def test_one_bad_row_of_a_group_fails_alone(connection, writer, gate):
    first = writer.put(row("resp_0"))
    puts = [writer.put(row(name)) for name in ("resp_1", "resp_2", "resp_1", "resp_3")]

    gate.set()
    results = await asyncio.gather(first, *puts, return_exceptions=True)

    assert [isinstance(result, WriteError) for result in results] == [False, False, False, True, False]
    assert isinstance(results[3].__cause__, duckdb.ConstraintException)
    assert ids(connection) == ["resp_0", "resp_1", "resp_2", "resp_3"]


async def test_a_put_that_was_cancelled_disturbs_no_other(connection, writer, gate):
    puts = [writer.put(row(f"resp_{number}")) for number in range(4)]

    puts[0].cancel()
    puts[2].cancel()
    gate.set()
    await asyncio.gather(puts[1], puts[3])

    assert ids(connection) == ["resp_0", "resp_1", "resp_2", "resp_3"]


async def test_a_put_that_was_cancelled_and_fails_is_silent(connection, writer, gate, caplog):
    puts = [writer.put(row("resp_0")), writer.put(row("resp_0"))]

    puts[1].cancel()
    gate.set()
    await asyncio.gather(puts[0])
    await asyncio.to_thread(writer.close)

    assert ids(connection) == ["resp_0"]
    assert caplog.messages == []


async def test_a_loop_that_has_gone_does_not_stop_the_writer(connection, writer, gate):
    async def leave():
        writer.put(row("resp_0"))

    await asyncio.to_thread(asyncio.run, leave())
    gate.set()
    await writer.put(row("resp_1"))

    assert ids(connection) == ["resp_0", "resp_1"]


async def test_closing_drains_and_then_refuses(connection, writer, gate):
    puts = [writer.put(row(f"resp_{number}")) for number in range(3)]

    gate.set()
    await asyncio.to_thread(writer.close)
    await asyncio.gather(*puts)

    assert len(ids(connection)) == 3
    with pytest.raises(WriteError, match="resp_9"):
        writer.put(row("resp_9"))
