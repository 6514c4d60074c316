import asyncio
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import ReadError, WriteError
from storage.rows import Chain, Cyclic, Missing, ResponseRow, TooDeep
from storage.store import open_store
from tests.storage.samples import line_of, row

TEXT = st.text()  # every character but lone surrogates, which are no Unicode text
SECONDS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
ROWS = st.builds(
    ResponseRow,
    id=st.uuids().map(str).flatmap(lambda unique: TEXT.map(lambda text: text + unique)),
    previous_response_id=st.none() | TEXT,
    ancestors=st.just(()),
    created_at=SECONDS,
    expires_at=st.none() | st.integers(min_value=1, max_value=2**63 - 1),
    model=TEXT,
    status=TEXT,
    instructions=st.none() | TEXT,
    input_json=TEXT,
    output_json=TEXT,
    usage_json=TEXT,
    config_json=TEXT,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, min_size=1, max_size=10))
def test_rows_come_back_as_they_were(tmp_path_factory, rows):
    async def put_and_read(file):
        store = open_store(str(file))
        await asyncio.gather(*map(store.put, rows))
        await store.close()
        store = open_store(str(file))
        chains = [await store.chain(row.id, now=0) for row in rows]
        await store.close()
        return chains

    chains = asyncio.run(put_and_read(tmp_path_factory.mktemp("trip") / "responses.duckdb"))

    assert chains == [Chain([row]) for row in rows]


@settings(max_examples=20, deadline=None)
@given(ancestors=st.lists(TEXT, max_size=5, unique=True))
def test_a_chain_follows_the_ancestors_whatever_their_names(ancestors):
    async def put_and_read():
        store = open_store(":memory:")
        rows = [row(name, ancestors=tuple(ancestors[:place])) for place, name in enumerate(ancestors)]
        rows.append(row("".join(ancestors) + "!", ancestors=tuple(ancestors)))
        await asyncio.gather(*map(store.put, rows))
        chain = await store.chain(rows[-1].id, now=0)
        await store.close()
        return rows, chain

    rows, chain = asyncio.run(put_and_read())

    assert chain == Chain(rows)


@pytest.mark.parametrize("text", ["a\0b\0", "\0", "\N{GRINNING FACE}\ufeff\u2028", "\N{GRINNING FACE}\0" * 2_000_000])
async def test_any_text_survives_a_restart(file, text):
    written = row(instructions=text, input_json=text)
    store = open_store(str(file))
    await store.put(written)
    await store.close()

    store = open_store(str(file))
    chain = await store.chain("resp_1", now=0)
    await store.close()

    assert chain == Chain([written])


async def test_an_unknown_id_has_no_chain(store):
    assert await store.chain("resp_1", now=0) == Missing()


async def test_a_chain_is_oldest_first_and_ends_with_the_row_itself(store):
    rows = line_of(3)
    for link in reversed(rows):
        await store.put(link)

    assert await store.chain("resp_2", now=0) == Chain(rows)
    assert await store.chain("resp_1", now=0) == Chain(rows[:2])


async def test_a_chain_with_a_missing_ancestor_is_no_chain(store):
    first, _, last = line_of(3)
    await store.put(first)
    await store.put(last)

    assert await store.chain("resp_2", now=0) == Missing()


async def test_a_chain_with_an_expired_ancestor_is_no_chain(store):
    await store.put(row("resp_0", expires_at=50))
    await store.put(row("resp_1", ancestors=("resp_0",), expires_at=90))

    assert len((await store.chain("resp_1", now=49)).rows) == 2
    assert await store.chain("resp_1", now=50) == Missing()


async def test_an_expired_row_is_unknown(store):
    await store.put(row("resp_0", expires_at=50))

    assert len((await store.chain("resp_0", now=49)).rows) == 1
    assert await store.chain("resp_0", now=50) == Missing()


async def test_a_row_alone_is_read_whatever_became_of_its_ancestors(store):
    written = row("resp_2", ancestors=("gone", "resp_2"), expires_at=50)
    await store.put(written)

    assert await store.chain("resp_2", now=49) == Cyclic()
    assert await store.row("resp_2", now=49) == written


async def test_a_row_alone_is_missing_if_it_is_unknown_has_expired_or_was_deleted(store):
    await store.put(row("resp_1", expires_at=50))
    await store.put(row("resp_2"))
    await store.delete("resp_2")

    assert await store.row("resp_0", now=0) == Missing()
    assert await store.row("resp_1", now=50) == Missing()
    assert await store.row("resp_2", now=0) == Missing()


async def test_a_chain_as_deep_as_the_limit_is_read_and_one_deeper_is_told_by_its_depth(store):
    rows = line_of(5)
    for link in rows:
        await store.put(link)

    assert await store.chain("resp_3", now=0, limit=4) == Chain(rows[:4])
    assert await store.chain("resp_4", now=0, limit=4) == TooDeep(5)
    assert await store.chain("resp_4", now=0) == Chain(rows)


async def test_the_ancestors_of_a_chain_that_is_too_deep_are_not_read(store):
    await store.put(row("resp_9", ancestors=tuple(f"gone_{number}" for number in range(9))))

    assert await store.chain("resp_9", now=0, limit=9) == TooDeep(10)
    assert await store.chain("resp_9", now=0, limit=10) == Missing()


async def test_a_row_that_has_expired_is_missing_however_deep_its_chain(store):
    await store.put(row("resp_9", ancestors=("resp_8", "resp_7"), expires_at=50))

    assert await store.chain("resp_9", now=50, limit=1) == Missing()


@pytest.mark.parametrize("ancestors", [("resp_1",), ("resp_0", "resp_1"), ("resp_0", "resp_0")])
@pytest.mark.parametrize("limit", [1, 1000])
async def test_a_chain_that_leads_back_to_itself_is_cyclic_whatever_the_limit(store, ancestors, limit):
    await store.put(row("resp_0"))
    await store.put(row("resp_1", ancestors=ancestors))

    assert await store.chain("resp_1", now=0, limit=limit) == Cyclic()


async def test_a_long_chain_is_found_in_a_large_table(store):
    await store.put(row("other"))
    store._database.connection.execute(
        "INSERT INTO responses SELECT responses.* REPLACE (id || number AS id)"
        " FROM responses, range(100000) AS numbers(number)"
    )
    rows = line_of(50)
    await asyncio.gather(*map(store.put, rows))

    assert await store.chain("resp_49", now=0) == Chain(rows)


async def test_two_hundred_puts_and_reads_at_once_all_land(store):
    rows = [row(f"resp_{number}") for number in range(200)]

    async def put_and_read(link):
        await store.put(link)
        return await store.chain(link.id, now=0)

    assert await asyncio.gather(*map(put_and_read, rows)) == [Chain([link]) for link in rows]


async def test_a_second_row_with_the_same_id_is_refused_and_the_first_stays(store):
    await store.put(row(model="first"))

    with pytest.raises(WriteError, match="resp_1"):
        await store.put(row(model="second"))

    assert [link.model for link in (await store.chain("resp_1", now=0)).rows] == ["first"]


@pytest.mark.parametrize("bad", [row(model="\ud800"), row(created_at=2**200), row(created_at=2**64)])
async def test_a_row_the_database_cannot_hold_is_refused_and_others_are_not(store, bad):
    with pytest.raises(WriteError):
        await store.put(bad)

    await store.put(row("resp_2"))
    assert await store.chain("resp_1", now=0) == Missing()


async def test_a_store_that_was_closed_refuses(file):
    store = open_store(str(file))

    await store.close()

    with pytest.raises(WriteError, match="closed"):
        await store.put(row())
    with pytest.raises(ReadError, match="The chain of 'resp_1' was not read, for the store is closed"):
        await store.chain("resp_1", now=0)
    with pytest.raises(ReadError, match="The row of 'resp_1' was not read, for the store is closed"):
        await store.row("resp_1", now=0)
    with pytest.raises(WriteError, match="resp_1 was not deleted, for the store is closed"):
        await store.delete("resp_1")
    with pytest.raises(WriteError, match="not swept, for the store is closed"):
        await store.sweep(now=0)


async def test_closing_twice_and_at_once_is_closing_once(file):
    store = open_store(str(file))

    await asyncio.gather(store.close(), store.close())
    await store.close()

    open_store(str(file)).close_now()


async def test_closing_writes_what_is_queued(file):
    rows = [row(f"resp_{number}") for number in range(250)]
    store = open_store(str(file))
    puts = [asyncio.ensure_future(store.put(link)) for link in rows]
    await asyncio.sleep(0)

    await store.close()

    await asyncio.gather(*puts)
    store = open_store(str(file))
    assert [await store.chain(link.id, now=0) for link in rows] == [Chain([link]) for link in rows]
    await store.close()


async def test_closing_leaves_no_thread(file):
    before = set(threading.enumerate())
    store = open_store(str(file))
    await store.put(row())
    await store.chain("resp_1", now=0)

    store.close_now()

    assert {thread for thread in threading.enumerate() if thread.name.startswith("interlock")} <= before


def test_a_database_in_memory_has_no_file_to_lose():
    store = open_store(":memory:")

    assert not store.has_lost_file
    store.close_now()


async def test_a_file_that_is_moved_is_lost_until_it_is_back_and_each_sweep_says_so(file, caplog):
    store, elsewhere = open_store(str(file)), file.with_name("elsewhere")
    await store.put(row())

    file.rename(elsewhere)
    assert store.has_lost_file
    await store.put(row("resp_2"))  # DuckDB notices nothing
    await store.sweep(now=0)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} is not where it was; put it back, or its rows are gone once the server stops"
    ]

    elsewhere.rename(file)
    assert not store.has_lost_file
    await store.sweep(now=0)
    assert len(caplog.records) == 1
    await store.close()


async def test_a_file_in_another_ones_place_is_a_loss_which_the_end_of_the_store_tells(file, caplog):
    store = open_store(str(file))
    file.rename(file.with_name("elsewhere"))

    file.write_bytes(file.with_name("elsewhere").read_bytes())

    assert store.has_lost_file
    store.close_now()
    assert [record.getMessage() for record in caplog.records] == [f"{file} is not where it was, so its rows are gone"]


async def test_the_file_stays_the_same_whatever_duckdb_does_with_it(file):
    store = open_store(str(file))

    for number in range(3):
        await store.put(row(f"resp_{number}", input_json="x" * 1_000_000))
        store._database.connection.execute("CHECKPOINT")
        await store.delete(f"resp_{number}")
        store._database.connection.execute("VACUUM")

    assert not store.has_lost_file
    store.close_now()


async def test_a_reader_that_leaves_disturbs_no_other(store):
    await store.put(row())
    reading = [asyncio.ensure_future(store.chain("resp_1", now=0)) for _ in range(10)]
    await asyncio.sleep(0)

    for task in reading[::2]:
        task.cancel()

    assert await asyncio.gather(*reading[1::2]) == [Chain([row()])] * 5


async def test_a_broken_database_is_a_read_error(store):
    store._database.connection.execute("DROP TABLE responses")

    with pytest.raises(ReadError, match="The chain of 'resp_1' could not be read"):
        await store.chain("resp_1", now=0)
    with pytest.raises(ReadError, match="The row of 'resp_1' could not be read"):
        await store.row("resp_1", now=0)
