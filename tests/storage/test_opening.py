import asyncio
import os
import shutil
import socket
import tempfile
from struct import pack_into, unpack_from

import duckdb
import pytest
from msgspec import json

from storage import locks, migrations, opening
from storage.errors import (
    DamagedDatabaseError,
    ForeignDatabaseError,
    LockedDatabaseError,
    NewerDatabaseError,
    NotADatabaseError,
    OpenError,
    UnusablePathError,
)
from storage.queries import insert
from storage.rows import Chain, TraceQuery
from storage.store import open_store
from tests.storage.samples import line_of, moved, row, trace

HOLD = """
import sys
from storage.store import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
store.close_now()
"""

ACKNOWLEDGE = """
import asyncio, itertools, sys
from storage.store import open_store
from tests.storage.samples import row

async def put_forever(store, worker):
    for number in itertools.count():
        await store.put(row(f"{worker}_{number}", input_json="x" * number * 50))
        print(f"{worker}_{number}", flush=True)

async def main():
    store = open_store(sys.argv[1])
    await asyncio.gather(*(put_forever(store, worker) for worker in range(20)))

asyncio.run(main())
"""

LEAVE_A_WAL = """
import os, sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute(sys.argv[2])
os._exit(0)
"""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def make_database(file, *statements):
    with duckdb.connect(str(file)) as connection:
        for statement in statements:
            connection.execute(statement)


def leave_wal(python, file, statement):
    python(LEAVE_A_WAL, file, statement).wait()
    assert file.with_name(f"{file.name}.wal").stat().st_size


def empty(file):
    file.touch()


def garbage(file):
    file.write_bytes(bytes(range(256)) * 200)


def a_short_file(file):
    file.write_bytes(b"DUCK")


def a_table_of_another_program(file):
    make_database(file, "CREATE TABLE orders (id INTEGER)")


def a_view_of_another_program(file):
    make_database(file, "CREATE SCHEMA shop", "CREATE VIEW shop.orders AS SELECT 1")


def a_later_migration(file):
    open_store(str(file)).close_now()
    make_database(file, "INSERT INTO interlock_migrations VALUES (1000, 'create_tomorrow', 0)")


def a_later_storage_format(file):
    """Raise the storage version of both headers, and their checksums: each word's product, joined by exclusive or."""
    open_store(str(file)).close_now()
    start, factor, mask = bytearray(file.read_bytes()), 0xBF58476D1CE4E5B9, 2**64 - 1
    for at in opening.STORAGE_VERSION_AT:
        (version,), (checksum,) = unpack_from("<Q", start, at), unpack_from("<Q", start, at - 56)
        pack_into("<Q", start, at, version + 1)
        pack_into("<Q", start, at - 56, checksum ^ (version * factor & mask) ^ ((version + 1) * factor & mask))
    file.write_bytes(start)


def flipped_bits(file):
    open_store(str(file)).close_now()
    file.write_bytes(bytes(byte ^ 90 if place > 100 else byte for place, byte in enumerate(file.read_bytes())))


def cut(length):
    def cut_short(file):
        open_store(str(file)).close_now()
        file.write_bytes(file.read_bytes()[:length])

    return cut_short


REFUSED = [
    (empty, NotADatabaseError, "is empty"),
    (garbage, NotADatabaseError, "is not a DuckDB database"),
    (a_short_file, NotADatabaseError, "is not a DuckDB database"),
    (a_table_of_another_program, ForeignDatabaseError, "another program"),
    (a_view_of_another_program, ForeignDatabaseError, "another program"),
    (a_later_migration, NewerDatabaseError, "newer Interlock"),
    (a_later_storage_format, NewerDatabaseError, "newer DuckDB"),
    (flipped_bits, DamagedDatabaseError, "damaged"),
    (cut(5_000), DamagedDatabaseError, "damaged"),
    (cut(-1), DamagedDatabaseError, "damaged"),
]


@pytest.mark.parametrize(("write", "kind", "words"), REFUSED)
@pytest.mark.parametrize("wal", [None, b"", b"not a write-ahead log"])
def test_a_file_that_is_not_ours_is_refused_in_a_sentence_and_left_as_it_was(file, write, kind, words, wal):
    write(file)
    if wal is not None:
        file.with_name(f"{file.name}.wal").write_bytes(wal)
    before = contents(file.parent)

    with pytest.raises(kind, match=words) as refused:
        open_store(str(file))

    assert str(file) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)
    assert contents(file.parent) == before


@pytest.mark.parametrize(
    ("write", "statement", "kind"),
    [
        (a_table_of_another_program, "INSERT INTO orders VALUES (1)", ForeignDatabaseError),
        (make_database, "CREATE TABLE orders (id INTEGER)", ForeignDatabaseError),
        (cut(None), "INSERT INTO interlock_migrations VALUES (1000, 'tomorrow', 0)", NewerDatabaseError),
    ],
)
def test_what_a_log_beside_the_file_says_counts_and_is_left_as_it_was(file, python, write, statement, kind):
    write(file)
    leave_wal(python, file, statement)
    before = contents(file.parent)

    with pytest.raises(kind):
        open_store(str(file))

    assert contents(file.parent) == before


def test_a_log_whose_database_is_missing_is_not_thrown_away(file):
    wal = file.with_name(f"{file.name}.wal")
    wal.write_bytes(b"the last writes")

    with pytest.raises(DamagedDatabaseError, match="is missing"):
        open_store(str(file))

    assert contents(file.parent) == {wal.name: b"the last writes"}


def test_a_refused_file_can_be_opened_once_it_is_put_right(file):
    file.touch()
    with pytest.raises(NotADatabaseError):
        open_store(str(file))

    file.unlink()

    open_store(str(file)).close_now()


def test_a_folder_is_no_database(tmp_path):
    with pytest.raises(UnusablePathError, match="not a file"):
        open_store(str(tmp_path))


def test_a_socket_is_no_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(UnusablePathError, match="not a file"):
            open_store("socket")


@pytest.mark.parametrize("path", ["taken/responses.duckdb", "taken/deeper/responses.duckdb", "x" * 300, "loop"])
def test_a_path_that_cannot_be_is_refused(tmp_path, path):
    (tmp_path / "taken").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    with pytest.raises(UnusablePathError, match="cannot hold a database"):
        open_store(str(tmp_path / path))


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_a_place_that_may_not_be_written_is_refused(file, monkeypatch, locked):
    open_store(str(file)).close_now()
    forbidden = file if locked == "file" else file.parent
    monkeypatch.setattr(os, "access", lambda path, mode: path != forbidden or not mode & os.W_OK)

    with pytest.raises(UnusablePathError, match="may not be written"):
        open_store(str(file))


def test_a_disk_that_refuses_a_new_file_is_an_unusable_path(file, monkeypatch):
    def refuse(*_, **__):
        raise duckdb.IOException

    monkeypatch.setattr(duckdb, "connect", refuse)

    with pytest.raises(UnusablePathError, match="opened for writing"):
        open_store(str(file))


async def test_what_outgrows_memory_goes_where_nobody_else_reads_and_is_gone_at_the_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(opening.CONFIG, "memory_limit", "20MB")
    store = open_store(":memory:")
    for number in range(40):
        await store.put(row(f"resp_{number}", input_json=os.urandom(500_000).hex()))

    [folder] = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [*folder.iterdir()]
    assert (await store.chain("resp_0", now=0)).rows[0].id == "resp_0"
    await store.close()
    assert not [*tmp_path.iterdir()]


def test_a_system_without_a_place_for_temporary_files_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    with pytest.raises(UnusablePathError, match="What outgrows memory has no place"):
        open_store(":memory:")


def test_missing_folders_are_made_for_a_new_file(tmp_path):
    file = tmp_path / "new" / "deeper" / "responses.duckdb"

    open_store(str(file)).close_now()

    assert file.exists()


def test_a_path_is_never_taken_for_the_name_of_an_extension(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    open_store("sqlite:responses").close_now()

    assert (tmp_path / "sqlite:responses").exists()


async def test_a_database_without_tables_becomes_ours(file):
    make_database(file)
    store = open_store(str(file))

    await store.put(row())

    assert await store.chain("resp_1", now=0) == Chain([row()])
    await store.close()


async def test_a_relative_path_and_a_link_are_the_same_file(file, monkeypatch):
    link = file.with_name("link.duckdb")
    link.symlink_to(file)
    monkeypatch.chdir(file.parent)
    store = open_store(file.name)

    with pytest.raises(LockedDatabaseError, match=str(os.getpid())):
        open_store(str(link))

    await store.close()


def test_a_file_held_by_another_process_is_refused_with_its_number(file, python):
    holder = python(HOLD, file)
    holder.stdout.readline()
    before = contents(file.parent)

    with pytest.raises(LockedDatabaseError, match=f"process {holder.pid}, a child of process {os.getpid()};"):
        open_store(str(file))

    assert contents(file.parent) == before


@pytest.mark.parametrize("step", ["_check_contents", "_open_writable"])
def test_a_lock_taken_between_two_steps_of_opening_is_still_a_locked_file(file, python, monkeypatch, step):
    open_store(str(file)).close_now()
    take_step = getattr(opening, step)

    def overtaken(file):
        python(HOLD, file).stdout.readline()
        take_step(file)

    monkeypatch.setattr(opening, step, overtaken)

    with pytest.raises(LockedDatabaseError):
        open_store(str(file))


def test_patience_outlasts_a_process_that_lets_go(file, python, monkeypatch):
    holder = python(HOLD, file)
    holder.stdout.readline()

    def let_go(_):
        holder.communicate("go\n")

    monkeypatch.setattr(opening.time, "sleep", let_go)

    open_store(str(file), patience=60).close_now()


def test_a_second_store_of_this_process_does_not_cost_the_first_its_lock(file, python):
    store = open_store(str(file))
    with pytest.raises(LockedDatabaseError):
        open_store(str(file))

    other = python(HOLD, file)

    assert other.stdout.readline() == ""
    store.close_now()


def test_a_file_let_go_of_may_be_opened_by_another_process(file, python):
    open_store(str(file)).close_now()

    assert python(HOLD, file).stdout.readline() == "open\n"


def test_nothing_stays_claimed(file):
    open_store(str(file)).close_now()
    shutil.copy(file, file.with_name("other.duckdb"))
    file.write_bytes(b"garbage")
    with pytest.raises(OpenError):
        open_store(str(file))

    assert locks._claims == set()


@pytest.mark.parametrize("acknowledgements", [1, 300, 1500])
async def test_what_was_acknowledged_survives_kill_9(file, python, acknowledgements):
    writing = python(ACKNOWLEDGE, file)
    acknowledged = [writing.stdout.readline() for _ in range(acknowledgements)]

    writing.kill()

    acknowledged += writing.stdout.readlines()
    ids = [line.strip() for line in acknowledged if line.endswith("\n")]
    store = open_store(str(file))
    lost = [one for one in ids if not isinstance(await store.chain(one, now=0), Chain)]
    await store.close()
    assert len(ids) >= acknowledgements
    assert lost == []


async def test_rows_survive_a_restart(file):
    rows = line_of(3)
    store = open_store(str(file))
    for link in rows:
        await store.put(link)
    await store.close()

    store = open_store(str(file))

    assert await store.chain("resp_2", now=0) == Chain(rows)
    await store.close()


def blocks(file):
    """Tell how many blocks DuckDB counts in a file, how many of them are free, and how many the file has."""
    with duckdb.connect(str(file), read_only=True) as connection:
        sizes = connection.execute("SELECT total_blocks, free_blocks, block_size FROM pragma_database_size()")
        total, free, size = sizes.fetchone()
    return total, free, (file.stat().st_size - opening.HEADERS_END) / size


async def live(file, second):
    """Put rows that expire then, sweep those that have expired, and close."""
    store = open_store(str(file))
    await asyncio.gather(*(store.put(row(f"resp_{second}_{number}", expires_at=second)) for number in range(100)))
    await store.sweep(second)
    await store.close()


async def test_a_file_whose_free_end_was_cut_off_by_a_checkpoint_is_whole(file):
    for second in range(3):
        await live(file, second)
    total, free, there = blocks(file)
    assert there == total - free < total

    store = open_store(str(file))

    assert isinstance(await store.chain("resp_2_0", now=0), Chain)
    await store.close()


@pytest.mark.parametrize("missing", [1, 262_144])
async def test_a_file_that_lost_more_than_its_free_end_is_damaged(file, missing):
    for second in range(3):
        await live(file, second)

    os.truncate(file, file.stat().st_size - missing)

    with pytest.raises(DamagedDatabaseError):
        open_store(str(file))


async def test_rows_survive_many_restarts_with_sweeps_and_the_file_does_not_grow(file):
    sizes = []
    for second in range(12):
        await live(file, second)
        sizes.append(file.stat().st_size)

    assert max(sizes[6:]) <= max(sizes[:6])


def recorded(file):
    with duckdb.connect(str(file)) as connection:
        return connection.execute("SELECT version, name FROM interlock_migrations ORDER BY version").fetchall()


OURS = [
    (1, "create_responses"),
    (2, "create_exchanges"),
    (3, "create_jobs"),
    (4, "widen_exchanges"),
    (5, "share_kinds"),
    (6, "number_kinds"),
]


def add_a_note(connection):
    connection.execute("CREATE TABLE notes (id INTEGER)")


def break_off(connection):
    connection.execute("CREATE TABLE half (id INTEGER)")
    connection.execute("SELECT * FROM nowhere")


def test_each_migration_is_applied_once_and_recorded(file, monkeypatch):
    open_store(str(file)).close_now()
    assert recorded(file) == OURS
    monkeypatch.setattr(opening, "MIGRATIONS", (*migrations.MIGRATIONS, add_a_note))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_a_note))

    open_store(str(file)).close_now()
    open_store(str(file)).close_now()

    assert recorded(file) == [*OURS, (len(OURS) + 1, "add_a_note")]


async def test_a_database_of_the_first_release_keeps_its_rows_and_gains_the_traces(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        store = open_store(str(file))
        await store.put(row())
        await store.close()
        assert recorded(file) == OURS[:1]

    store = open_store(str(file))

    assert await store.chain("resp_1", now=0) == Chain([row()])
    store.record(trace())
    await store.close()
    assert recorded(file) == OURS
    with duckdb.connect(str(file)) as connection:
        assert connection.execute("SELECT count(*) FROM exchanges").fetchone() == (1,)


OLD_TRACES = {
    3: "VALUES ($id, 100, 'POST', '/v1/responses', 'DONE', 'row_written', 503, NULL, 'resp_1', $moves)",
    4: "VALUES ($id, 100, $machine, 'POST', '/v1/responses', 'DONE', 'row_written', 503, NULL, 'resp_1', $moves, '{}')",
    5: "SELECT $id, 100, concat_ws(chr(31), $machine, 'POST', '/v1/responses', 'DONE', 'row_written', '503', '',"
    " to_json([each[:3] for each in steps])), 'resp_1', to_json([CAST(each[4] AS DOUBLE) * 1000 for each in steps]),"
    " '{}' FROM (SELECT CAST(CAST($moves AS JSON) AS VARCHAR[][]) AS steps)",
}
PATHS = {
    "ex_1": '[["decode_finished","DISPATCHING","EMITTING",5.5],["row_written","PERSISTING","DONE",1.5]]',
    "ex_2": '[["decode_finished","DISPATCHING","PERSISTING",5.5],["terminal_sent","EMITTING","DONE",1.5]]',
    "ex_3": '[["job_accepted","QUEUED","HELD",5.5],["client_gone","HELD","ABANDONED",1.5]]',
}


@pytest.mark.parametrize("moves", ["[]", "", "null", "{}", '[["x","A","B"]]', '[["x","A","B",null]]'])
async def test_whatever_an_old_trace_has_it_keeps_no_other_from_being_read(file, monkeypatch, moves):
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:4])
        store = open_store(str(file))
        for exchange_id, given in {"ex_1": PATHS["ex_1"], "ex_2": moves}.items():
            values = {"id": exchange_id, "moves": given, "machine": "exchange"}
            store._database.connection.execute(f"INSERT INTO exchanges {OLD_TRACES[4]}", values)
        await store.close()

    store = open_store(str(file))
    found = {one.id: one for one in await store.traces(TraceQuery())}
    await store.close()

    assert found["ex_1"].ms == (5.5, 1.5)
    assert len(json.decode(found["ex_2"].moves)) == len(found["ex_2"].ms)


async def test_an_old_trace_has_whatever_path_was_asked_for(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:4])
        store = open_store(str(file))
        insert = OLD_TRACES[4].replace("/v1/responses", "/a\x1f\x1fb")
        store._database.connection.execute(
            f"INSERT INTO exchanges {insert}", {"id": "ex_1", "moves": PATHS["ex_1"], "machine": "exchange"}
        )
        await store.close()

    store = open_store(str(file))
    found = await store.trace("ex_1")
    await store.close()

    assert (found.path, found.state, found.status, found.model) == ("/a\x1f\x1fb", "DONE", 503, None)
    assert [move[0] for move in json.decode(found.moves)] == ["decode_finished", "row_written"]


@pytest.mark.parametrize("version", OLD_TRACES)
async def test_traces_of_an_earlier_release_are_read_and_swept_like_new_ones(file, monkeypatch, version):
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:version])
        store = open_store(str(file))
        for exchange_id, moves in PATHS.items():
            machine = {} if version == 3 else {"machine": "exchange" if exchange_id == "ex_1" else "durable"}
            values = {"id": exchange_id, "moves": moves, **machine}
            store._database.connection.execute(f"INSERT INTO exchanges {OLD_TRACES[version]}", values)
        await store.close()

    store = open_store(str(file))
    store.record(trace("ex_4", ended_at=100.25))
    found = await store.traces(TraceQuery(event="decode_finished"))

    assert [(one.id, one.machine, one.ended_at, one.facts) for one in found] == [
        ("ex_2", "durable", 100, "{}"), ("ex_1", "exchange", 100, "{}"),
    ]  # fmt: skip
    steps = ("decode_finished", "DISPATCHING", "EMITTING", 5.5), ("row_written", "PERSISTING", "DONE", 1.5)
    assert found[1] == trace(
        "ex_1", machine="exchange", event="row_written", status=503, model=None, facts="{}", **moved(*steps)
    )
    assert (await store.trace("ex_3")).machine == "durable"
    await store.sweep(now=200, trace_retention=100)
    assert len(await store.traces(TraceQuery())) == 4
    await store.sweep(now=201, trace_retention=100)
    assert await store.traces(TraceQuery()) == []
    await store.close()


def test_a_migration_that_breaks_leaves_the_tables_as_they_were(file, monkeypatch):
    open_store(str(file)).close_now()
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_a_note, break_off))

    with pytest.raises(OpenError, match="brought up to date"):
        open_store(str(file))

    monkeypatch.undo()
    assert recorded(file) == OURS
    open_store(str(file)).close_now()


def test_texts_are_not_compressed_for_reading_one_would_unpack_thousands(file):
    store = open_store(str(file))
    rows = [row(f"resp_{number}", input_json="text" * 3000) for number in range(100)]
    insert(store._database.connection, rows)
    store.close_now()

    with duckdb.connect(str(file)) as connection:
        found = connection.execute(
            "SELECT DISTINCT compression FROM pragma_storage_info('responses')"
            " WHERE column_name IN ('instructions', 'input_json', 'output_json') AND segment_type = 'VARCHAR'"
        ).fetchall()

    assert found == [("Uncompressed",)]
