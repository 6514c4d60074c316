import asyncio

import pytest

from storage.pending import PendingWrites

LONG = 60.0


@pytest.fixture
def pending():
    return PendingWrites()


async def test_an_id_is_pending_from_its_reservation_to_its_release(pending):
    assert not pending.is_pending("resp_1")

    pending.reserve("resp_1")

    assert pending.is_pending("resp_1")
    assert not pending.is_pending("resp_2")

    pending.release("resp_1")

    assert not pending.is_pending("resp_1")


async def test_waiting_for_what_is_not_pending_ends_at_once(pending):
    assert await pending.wait("resp_1", 0) is True


async def test_a_release_wakes_every_waiter(pending):
    pending.reserve("resp_1")
    waiters = [asyncio.ensure_future(pending.wait("resp_1", LONG)) for _ in range(3)]
    await asyncio.sleep(0)

    pending.release("resp_1")

    assert await asyncio.gather(*waiters) == [True, True, True]


async def test_a_release_wakes_no_waiter_of_another_id(pending):
    pending.reserve("resp_1")
    pending.reserve("resp_2")
    waiter = asyncio.ensure_future(pending.wait("resp_2", LONG))
    await asyncio.sleep(0)

    pending.release("resp_1")
    await asyncio.sleep(0)

    assert not waiter.done()
    pending.release("resp_2")
    assert await waiter is True


async def test_a_wait_that_runs_out_of_time_says_so_and_the_id_stays_pending(pending):
    pending.reserve("resp_1")

    assert await pending.wait("resp_1", 0) is False

    assert pending.is_pending("resp_1")


async def test_a_waiter_that_is_cancelled_disturbs_no_other(pending):
    pending.reserve("resp_1")
    gone, stays = (asyncio.ensure_future(pending.wait("resp_1", LONG)) for _ in range(2))
    await asyncio.sleep(0)

    gone.cancel()
    await asyncio.sleep(0)
    pending.release("resp_1")

    assert await stays is True
    assert gone.cancelled()


async def test_reserving_or_releasing_twice_is_doing_it_once(pending):
    pending.reserve("resp_1")
    waiter = asyncio.ensure_future(pending.wait("resp_1", LONG))
    await asyncio.sleep(0)

    pending.reserve("resp_1")
    pending.release("resp_1")
    pending.release("resp_1")

    assert await waiter is True
    assert not pending.is_pending("resp_1")


async def test_when_all_are_released_nothing_is_held(pending):
    for number in range(100):
        pending.reserve(f"resp_{number}")
        await pending.wait(f"resp_{number}", 0)

    for number in range(100):
        pending.release(f"resp_{number}")

    assert pending._settled == {}
