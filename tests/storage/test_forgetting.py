"""Rows go when they are deleted or have expired; what else is written meanwhile is not disturbed."""

import asyncio

import pytest

from storage import store as module
from storage.errors import WriteError
from storage.rows import Chain, Missing
from tests.storage.samples import line_of, row


async def put_all(store, rows):
    await asyncio.gather(*map(store.put, rows))


def ids(store):
    return {found for (found,) in store._database.connection.execute("SELECT id FROM responses").fetchall()}


async def test_a_deleted_row_is_missing_and_so_are_its_descendants(store):
    await put_all(store, line_of(3))

    assert await store.delete("resp_1") is True

    assert isinstance(await store.chain("resp_0", now=0), Chain)
    assert await store.chain("resp_1", now=0) == Missing()
    assert await store.chain("resp_2", now=0) == Missing()


async def test_deleting_what_is_not_there_deletes_nothing(store):
    await store.put(row("resp_2"))

    assert await store.delete("resp_1") is False
    assert ids(store) == {"resp_2"}


async def test_a_deletion_comes_after_the_put_before_it_and_before_the_one_after(store):
    puts = [asyncio.ensure_future(store.put(row("resp_1", model="first")))]
    await asyncio.sleep(0)
    deleting = asyncio.ensure_future(store.delete("resp_1"))
    await asyncio.sleep(0)
    puts.append(asyncio.ensure_future(store.put(row("resp_1", model="second"))))

    await asyncio.gather(*puts)

    assert await deleting is True
    assert [link.model for link in (await store.chain("resp_1", now=0)).rows] == ["second"]


async def test_a_deleted_row_stays_deleted_after_a_restart(file):
    store = module.open_store(str(file))
    await put_all(store, line_of(2))
    await store.delete("resp_0")
    await store.close()

    store = module.open_store(str(file))

    assert ids(store) == {"resp_1"}
    await store.close()


async def test_sweeping_deletes_the_rows_that_have_expired_and_counts_them(store):
    await put_all(
        store, [row("never"), row("before", expires_at=99), row("now", expires_at=100), row("later", expires_at=101)]
    )

    assert await store.sweep(now=100) == 1
    assert ids(store) == {"never", "now", "later"}
    assert await store.sweep(now=102) == 2
    assert await store.sweep(now=102) == 0
    assert ids(store) == {"never"}


@pytest.mark.parametrize("expired", [2, 3, 6, 7])
async def test_sweeping_goes_on_until_nothing_is_left_however_small_its_portions(store, monkeypatch, expired):
    monkeypatch.setattr(module, "SWEPT_AT_ONCE", 3)
    await put_all(store, [row(f"resp_{number}", expires_at=5) for number in range(expired)])
    await store.put(row("stays"))

    assert await store.sweep(now=10) == expired
    assert ids(store) == {"stays"}


async def test_rows_put_while_a_sweep_runs_all_land(store, monkeypatch):
    monkeypatch.setattr(module, "SWEPT_AT_ONCE", 10)
    await put_all(store, [row(f"old_{number}", expires_at=5) for number in range(200)])
    rows = [row(f"new_{number}", expires_at=50) for number in range(200)]

    swept, _ = await asyncio.gather(store.sweep(now=10), put_all(store, rows))

    assert swept == 200
    assert ids(store) == {link.id for link in rows}


async def test_a_row_does_not_wait_for_the_end_of_a_sweep(store, monkeypatch):
    monkeypatch.setattr(module, "SWEPT_AT_ONCE", 1)
    await put_all(store, [row(f"old_{number}", expires_at=5) for number in range(20)])
    sweeping = asyncio.ensure_future(store.sweep(now=10))
    await asyncio.sleep(0)

    await store.put(row("new"))

    assert not sweeping.done()
    assert await sweeping == 20


async def test_a_chain_can_be_read_while_rows_are_swept(store):
    rows = line_of(20)
    await put_all(store, [*rows, *(row(f"old_{number}", expires_at=5) for number in range(500))])

    found = await asyncio.gather(store.sweep(now=10), *(store.chain("resp_19", now=10) for _ in range(50)))

    assert found[1:] == [Chain(rows)] * 50


async def test_a_broken_table_is_a_write_error_and_the_writer_goes_on(store):
    store._database.connection.execute("DROP TABLE responses")

    with pytest.raises(WriteError, match="resp_1 was not deleted"):
        await store.delete("resp_1")
    with pytest.raises(WriteError, match="responses was not swept"):
        await store.sweep(now=0)
