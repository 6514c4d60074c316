"""The tracker of writes, from a reservation to its row, over a store that is told when to answer."""

import asyncio
import gc

import pytest
from transitions import MachineError

from handlers import write as module
from handlers.writes import FAILED_KEPT
from machines.write import WRITE, State
from tests.storage.scripted import (
    FAR,
    HARD,
    NOW,
    SOFT,
    TTL,
    begin,
    calm,
    holds_nothing,
    raising,
    wedge,
)

# From the reservation to the row


async def test_an_id_is_pending_from_its_reservation_until_its_row_has_landed(writes, script, time):
    assert not writes.is_pending("resp_1")

    writes.reserve("resp_1", FAR)
    assert writes.is_pending("resp_1")

    write = writes.start("resp_1", script.write)
    assert writes.is_pending("resp_1")

    await script.land()
    assert not writes.is_pending("resp_1")
    assert not writes.is_pending("resp_2")
    assert write.state is State.LANDED
    assert holds_nothing(writes, time)


async def test_a_continuation_at_once_waits_for_the_write_and_finds_it_settled(writes, script):
    writes.reserve("resp_1", FAR)
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    writes.start("resp_1", script.write)
    await script.land()

    assert await continuation is True


async def test_a_terminal_that_was_not_delivered_gives_its_id_back_and_wakes_who_waits(writes, time):
    writes.reserve("resp_1", FAR)
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    writes.release("resp_1")

    assert await continuation is True
    assert holds_nothing(writes, time)


async def test_an_id_that_is_not_known_is_settled(writes):
    assert await writes.settled("resp_1", SOFT) is True


async def test_a_continuation_that_waits_too_long_is_told_so(writes, script, time):
    begin(writes, script)
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    time.move(SOFT)

    assert await continuation is False
    assert writes.is_pending("resp_1")


async def test_reserving_and_releasing_twice_is_doing_it_once(writes, time):
    writes.reserve("resp_1", FAR)
    writes.reserve("resp_1", None)
    assert writes.earliest("resp_1") == FAR

    writes.release("resp_1")
    writes.release("resp_1")
    assert holds_nothing(writes, time)


async def test_a_write_that_has_started_is_neither_reserved_anew_nor_released(writes, script):
    write = begin(writes, script)

    writes.reserve("resp_1", NOW)
    writes.release("resp_1")

    assert writes.known == {"resp_1": write}
    assert writes.earliest("resp_1") == FAR
    assert write.state is State.IN_FLIGHT


async def test_a_write_starts_once_and_only_for_a_reserved_id(writes, script):
    with pytest.raises(KeyError):
        writes.start("resp_1", script.write)

    begin(writes, script)
    with pytest.raises(MachineError):
        writes.start("resp_1", script.write)


async def test_a_waiter_that_is_cancelled_disturbs_no_other_and_leaves_no_timer(writes, script, time):
    begin(writes, script)
    gone, stays = (asyncio.ensure_future(writes.settled("resp_1", SOFT)) for _ in range(2))
    await calm()

    gone.cancel()
    await calm()
    assert len(time.timers) == 2  # the breaker's and the other waiter's

    await script.land()
    assert await stays is True


async def test_the_write_outlives_the_request_that_started_it(writes, script):
    async def request():
        return await begin(writes, script).landed(SOFT)

    asked = asyncio.ensure_future(request())
    await calm()
    asked.cancel()
    await calm()

    assert asked.cancelled()
    assert writes.is_pending("resp_1")
    await script.land()
    assert not writes.is_pending("resp_1")


# How its exchange learns of it


async def test_a_row_that_lands_in_time_is_written(writes, script):
    landing = asyncio.ensure_future(begin(writes, script).landed(SOFT))

    await script.land()

    assert await landing == "row_written"


async def test_a_row_that_has_landed_before_it_is_asked_for_is_written(writes, script, time):
    write = begin(writes, script)
    await script.land()

    assert await write.landed(SOFT) == "row_written"
    assert holds_nothing(writes, time)


async def test_a_row_that_fails_is_lost_to_its_exchange(writes, script):
    landing = asyncio.ensure_future(begin(writes, script).landed(SOFT))

    await script.fail()

    assert await landing == "row_lost"


async def test_a_row_that_takes_longer_than_the_soft_timeout_is_late_and_goes_on(writes, script, time, caplog):
    write = begin(writes, script)
    landing = asyncio.ensure_future(write.landed(SOFT))
    await calm()

    time.move(SOFT)

    assert await landing == "row_late"
    assert write.state is State.LATE
    assert writes.is_pending("resp_1")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_row_that_wedges_before_the_soft_timeout_is_late(make, script, time):
    writes = make(hard_timeout=1.0)
    landing = asyncio.ensure_future(begin(writes, script).landed(SOFT))
    await calm()

    time.move(SOFT)

    assert await landing == "row_late"
    assert writes.is_wedged("resp_1")


@pytest.mark.parametrize("error", [OSError("full"), ValueError(), asyncio.CancelledError()])
async def test_a_store_that_raises_before_it_awaits_has_failed_like_one_that_raises_later(
    writes, model, time, caplog, error
):
    writes.reserve("resp_1", FAR)

    write = writes.start("resp_1", raising(error), model, model.settle)

    assert write.state is State.FAILED
    assert await write.landed(SOFT) == "row_lost"
    assert model.releases == [False]
    assert model.settled == 0
    assert not time.timers
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_store_that_answers_no_awaitable_has_failed(writes):
    writes.reserve("resp_1", FAR)

    assert writes.start("resp_1", lambda: None).state is State.FAILED


async def test_the_error_of_a_write_nobody_waits_for_is_logged_once_and_consumed(writes, script, caplog):
    begin(writes, script)

    await script.fail(OSError("the disk is full"))
    gc.collect()

    (record,) = caplog.records
    assert "resp_1" in record.message
    assert isinstance(record.exc_info[1], OSError)


async def test_a_write_whose_task_is_cancelled_has_failed(writes, script, model, caplog):
    write = begin(writes, script, model=model)
    await calm()

    for running in list(writes.running):
        running.cancel()
    await calm()

    assert write.state is State.FAILED
    assert model.releases == [False]
    assert len(caplog.records) == 1


async def test_a_write_whose_task_is_cancelled_before_it_ran_has_failed(writes, script):
    write = begin(writes, script)

    for running in list(writes.running):
        running.cancel()
    await calm()

    assert write.state is State.FAILED
    assert script.attempts == []


# A write that failed


async def test_a_continuation_of_a_row_that_failed_writes_it_again(writes, script, time):
    write = begin(writes, script)
    await script.fail()
    assert not writes.is_pending("resp_1")

    assert writes.retry("resp_1")
    assert writes.is_pending("resp_1")
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await script.land()

    assert await continuation is True
    assert write.state is State.LANDED
    assert holds_nothing(writes, time)


async def test_a_continuation_of_a_row_that_fails_again_is_told_that_it_is_not_settled(writes, script):
    begin(writes, script)
    await script.fail()
    assert writes.retry("resp_1")
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))

    await script.fail()

    assert await continuation is False
    assert writes.earliest("resp_1") == FAR
    assert await writes.settled("resp_1", SOFT) is False
    assert writes.retry("resp_1")


async def test_only_a_row_that_failed_is_written_again(writes, script):
    assert not writes.retry("resp_1")

    begin(writes, script)

    assert not writes.retry("resp_1")
    await calm()
    assert len(script.attempts) == 1


async def test_a_row_that_failed_is_not_written_again_once_it_has_expired(writes, script, time):
    write = begin(writes, script, expires_at=NOW + 100)
    await script.fail()

    time.move(100)

    assert not writes.retry("resp_1")
    assert write.state is State.LOST
    assert holds_nothing(writes, time)


async def test_sweeping_writes_what_failed_again(writes, script, time):
    begin(writes, script)
    await script.fail()

    writes.sweep()
    await script.land()

    assert holds_nothing(writes, time)


async def test_sweeping_forgets_the_failed_rows_that_have_expired(writes, script, time):
    begin(writes, script, expires_at=NOW + 100)
    await script.fail()
    time.move(100)

    writes.sweep()

    assert len(script.attempts) == 1
    assert holds_nothing(writes, time)


async def test_so_many_failed_rows_are_kept_and_the_oldest_is_given_up(writes):
    for number in range(FAILED_KEPT + 3):
        writes.reserve(f"resp_{number}", FAR)
        writes.start(f"resp_{number}", raising(OSError("full")))

    assert len(writes.failed) == FAILED_KEPT
    assert writes.held == FAILED_KEPT
    assert not any(writes.retry(f"resp_{number}") for number in range(3))
    assert writes.retry("resp_3")


async def test_a_row_written_again_can_wedge_and_land(writes, script, time):
    begin(writes, script)
    await script.fail()
    writes.retry("resp_1")
    await calm()

    time.move(HARD)
    assert writes.is_wedged("resp_1")

    await script.land()
    assert holds_nothing(writes, time)


# Every row of the table is a thing the tracker does


async def landed_late(writes, script, time):
    landing = asyncio.ensure_future(begin(writes, script).landed(SOFT))
    await calm()
    time.move(SOFT)
    await landing


async def expire(writes, script, time):
    wedge(writes, script, time)
    time.move(TTL)
    writes.sweep()


async def nothing(*_):
    pass


async def started(writes, script, _):
    begin(writes, script)


async def wedged(writes, script, time):
    wedge(writes, script, time)


async def failed(writes, script, _):
    begin(writes, script, expires_at=NOW + 100)
    await script.fail()


async def reserved(writes, *_):
    writes.reserve("resp_1", FAR)


STANDING = {
    State.RESERVED: reserved,
    State.IN_FLIGHT: started,
    State.LATE: landed_late,
    State.WEDGED: wedged,
    State.EXPIRED: expire,
    State.FAILED: failed,
}


async def start(writes, script, _):
    writes.start("resp_1", script.write)


async def release(writes, *_):
    writes.release("resp_1")


async def wait_softly(writes, _, time):
    landing = asyncio.ensure_future(writes.known["resp_1"].landed(SOFT))
    await calm()
    time.move(SOFT)
    await landing


async def pass_hard_timeout(_, __, time):
    time.move(HARD)


async def ask(writes, *_):
    assert writes.is_wedged("resp_1")


async def pass_ttl(writes, _, time):
    time.move(TTL)
    writes.sweep()


async def land(_, script, __):
    await script.land()


async def fail(_, script, __):
    await script.fail()


async def try_again(writes, *_):
    assert writes.retry("resp_1")


async def expire_failed(writes, _, time):
    time.move(100)
    writes.sweep()


async def crowd_out(writes, *_):
    for number in range(FAILED_KEPT):
        writes.reserve(f"other_{number}", FAR)
        writes.start(f"other_{number}", raising(OSError("full")))


PROVOKE = {
    "write_started": start,
    "terminal_undelivered": release,
    "soft_timeout_passed": wait_softly,
    "hard_timeout_passed": pass_hard_timeout,
    "marker_renewed": ask,
    "marker_expired": pass_ttl,
    "row_committed": land,
    "write_failed": fail,
    "write_retried": try_again,
    "row_expired": expire_failed,
    "row_given_up": crowd_out,
}


@pytest.mark.parametrize(("event", "state"), sorted(WRITE.edges, key=lambda edge: (edge[0], edge[1].name)))
async def test_every_move_is_made_by_a_real_write(writes, script, time, monkeypatch, event, state):
    made = []
    fire = module.fire
    monkeypatch.setattr(module, "fire", lambda *given: made.append((given[2], given[1].state)) or fire(*given))
    await STANDING[state](writes, script, time)

    await PROVOKE[event](writes, script, time)

    assert (event, state) in made
