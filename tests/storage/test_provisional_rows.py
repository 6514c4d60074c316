"""Rows that are held back until their terminal event has left, over a store that is told when to answer."""

import asyncio

import pytest

from handlers import provisional as module
from machines import driver
from machines.driver import fire
from machines.provisional import PROVISIONAL, State
from storage.errors import WriteError
from tests.storage.scripted import FAR, SOFT, begin, calm, holds_nothing


class Deletes:
    """Deletes as a test says."""

    def __init__(self):
        self.asked = []
        self.errors = []
        self.opened = asyncio.Event()
        self.opened.set()

    async def delete(self, response_id):
        self.asked.append(response_id)
        await self.opened.wait()
        if self.errors:
            raise self.errors.pop()


@pytest.fixture
def deletes():
    return Deletes()


@pytest.fixture
def rows(writes):
    return writes.provisional


@pytest.fixture
async def row(writes, script, rows, deletes):
    """Start the write of a row that is held back."""
    begin(writes, script)
    rows.hold("resp_1", deletes.delete)
    return rows.known["resp_1"]


async def test_a_row_is_pending_though_it_has_landed_until_it_is_kept(writes, script, row, rows, time):
    await script.land()
    assert writes.known == {}
    assert writes.is_pending("resp_1")
    assert rows.hides("resp_1")

    rows.keep("resp_1")

    assert not writes.is_pending("resp_1")
    assert not rows.hides("resp_1")
    assert holds_nothing(writes, time)


async def test_a_continuation_waits_until_the_row_is_kept(writes, script, row, rows, time):
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await script.land()
    assert not continuation.done()

    rows.keep("resp_1")

    assert await continuation is True
    assert time.timers == {}


async def test_a_continuation_of_a_row_that_is_kept_late_waits_for_its_write_too(writes, script, row, rows):
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    rows.keep("resp_1")
    await calm()
    assert not continuation.done()
    await script.land()

    assert await continuation is True


async def test_a_continuation_that_waits_too_long_is_told_so(writes, script, row, time):
    await script.land()
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    time.move(SOFT)

    assert await continuation is False


async def test_a_continuation_of_a_row_that_is_withdrawn_is_let_go_at_once(writes, script, row):
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    writes.release("resp_1")

    assert await continuation is True
    assert not writes.is_pending("resp_1")
    await script.land()


async def test_a_row_that_is_withdrawn_is_deleted_after_it_has_landed_and_not_before(
    writes, script, row, rows, deletes, time
):
    writes.release("resp_1")
    await calm()
    assert (row.state, deletes.asked) == (State.WITHDRAWN, [])
    assert rows.hides("resp_1")

    await script.land()

    assert (row.state, deletes.asked) == (State.DELETED, ["resp_1"])
    assert holds_nothing(writes, time)


async def test_a_row_that_is_withdrawn_before_its_write_has_started_is_released(writes, rows, deletes, time):
    writes.reserve("resp_1", FAR)
    rows.hold("resp_1", deletes.delete)

    writes.release("resp_1")
    await calm()

    assert rows.known == {}
    assert holds_nothing(writes, time)


@pytest.mark.parametrize("withdrawn_first", [False, True])
async def test_a_row_that_is_withdrawn_and_fails_is_not_written_again(writes, script, row, rows, time, withdrawn_first):
    if withdrawn_first:
        writes.release("resp_1")
    await script.fail()
    writes.release("resp_1")
    await calm()

    assert not writes.retry("resp_1")
    assert (writes.failed, rows.known, len(script.attempts)) == ({}, {}, 1)
    assert holds_nothing(writes, time)


async def test_a_row_that_is_held_back_is_written_again_by_the_sweep_alone(writes, script, row):
    await script.fail()

    assert not writes.retry("resp_1")
    writes.sweep()
    await calm()

    assert len(script.attempts) == 2
    await script.land()


async def test_a_row_that_is_being_written_again_when_it_is_withdrawn_is_deleted_after_that(
    writes, script, row, deletes
):
    await script.fail()
    writes.sweep()
    writes.release("resp_1")
    await calm()
    assert deletes.asked == []

    await script.land()

    assert deletes.asked == ["resp_1"]


async def test_a_stuck_write_that_is_withdrawn_is_unknown_and_deleted_when_it_lands(make, script, deletes, model, time):
    writes = make(hard_timeout=1.0, marker_ttl=1.0)
    begin(writes, script, model=model)
    writes.provisional.hold("resp_1", deletes.delete)
    time.move(1)
    assert writes.markers
    writes.release("resp_1")
    assert not writes.is_wedged("resp_1")
    assert await writes.settled("resp_1", SOFT) is True

    time.move(1)
    writes.sweep()
    assert writes.known == {}
    assert writes.provisional.hides("resp_1")
    await script.land()

    assert deletes.asked == ["resp_1"]
    assert (model.releases, model.settled) == ([True], 1)
    assert holds_nothing(writes, time)


async def test_what_is_kept_is_not_withdrawn_and_what_is_withdrawn_is_not_kept(writes, script, row, rows, deletes):
    await script.land()
    rows.keep("resp_1")
    rows.withdraw("resp_1")
    rows.keep("resp_1")
    await calm()
    assert (row.state, deletes.asked) == (State.KEPT, [])

    begin(writes, script, "resp_2")
    rows.hold("resp_2", deletes.delete)
    rows.withdraw("resp_2")
    rows.keep("resp_2")
    rows.withdraw("resp_2")
    await script.land()
    assert deletes.asked == ["resp_2"]


async def test_a_row_that_could_not_be_deleted_is_tried_again_by_each_sweep(writes, script, row, rows, deletes, time):
    deletes.errors = [WriteError("disk full")] * 2
    writes.release("resp_1")
    await script.land()

    for asked in (1, 2):
        assert (row.state, len(deletes.asked)) == (State.UNDELETED, asked)
        assert rows.hides("resp_1")
        writes.sweep()
        await calm()

    assert (row.state, len(deletes.asked)) == (State.DELETED, 3)
    assert holds_nothing(writes, time)


async def test_a_sweep_does_not_hurry_a_row_that_is_still_being_written(writes, script, row, deletes):
    writes.release("resp_1")
    await calm()

    writes.sweep()
    await calm()

    assert (row.state, deletes.asked) == (State.WITHDRAWN, [])
    await script.land()


async def test_closing_waits_for_what_is_being_deleted(writes, script, row, rows, deletes):
    deletes.opened.clear()
    writes.release("resp_1")
    await script.land()
    closing = asyncio.ensure_future(rows.close(60))
    await calm()
    assert not closing.done()

    deletes.opened.set()

    await closing
    assert row.state is State.DELETED


async def test_closing_tries_once_more_to_delete_what_could_not_be(writes, script, row, rows, deletes):
    deletes.errors = [WriteError("disk full")]
    writes.release("resp_1")
    await script.land()
    assert row.state is State.UNDELETED

    await rows.close(60)

    assert row.state is State.DELETED


async def test_closing_leaves_behind_what_takes_too_long(writes, script, row, rows, deletes):
    writes.release("resp_1")
    await calm()

    await rows.close(0)

    assert row.state is State.LEFT
    assert rows.running == set()
    await script.land()


async def test_closing_with_nothing_to_delete_ends_at_once(rows):
    await rows.close(60)


# Every row of the table is a thing the rows do


async def withdrawn(writes, *_):
    writes.release("resp_1")
    await calm()


async def being_deleted(writes, script, deletes):
    deletes.opened.clear()
    writes.release("resp_1")
    await script.land()


async def undeleted(writes, script, deletes):
    deletes.errors = [WriteError("disk full")] * 2
    writes.release("resp_1")
    await script.land()


async def nothing(*_):
    pass


STANDING = {
    State.PROVISIONAL: nothing,
    State.WITHDRAWN: withdrawn,
    State.DELETING: being_deleted,
    State.UNDELETED: undeleted,
}


async def deliver(writes, *_):
    writes.provisional.keep("resp_1")


async def lose(writes, *_):
    writes.release("resp_1")


async def land(_, script, __):
    await script.land()


async def open_gate(_, __, deletes):
    deletes.opened.set()


async def fail_to_delete(_, __, deletes):
    deletes.errors = [WriteError("disk full")]
    deletes.opened.set()


async def sweep(writes, *_):
    writes.sweep()


async def break_off(writes, script, deletes):
    deletes.errors = [ZeroDivisionError()]
    deletes.opened.set()
    writes.provisional.attempts = None
    if writes.running:
        await script.land()


async def close(writes, *_):
    await writes.provisional.close(0.001)


PROVOKE = {
    "terminal_delivered": deliver,
    "terminal_undelivered": lose,
    "write_ended": land,
    "row_deleted": open_gate,
    "delete_failed": fail_to_delete,
    "delete_retried": sweep,
    "crashed": break_off,
    "server_closed": close,
}


@pytest.mark.parametrize(("event", "state"), sorted(PROVISIONAL.edges, key=lambda edge: (edge[0], edge[1].name)))
async def test_every_move_is_made_by_a_real_row(writes, script, row, deletes, monkeypatch, event, state):
    made = []
    for room in (module, driver):
        monkeypatch.setattr(room, "fire", lambda *given: made.append((given[2], given[1].state)) or fire(*given))
    await STANDING[state](writes, script, deletes)

    await PROVOKE[event](writes, script, deletes)
    await calm()

    assert (event, state) in made
    await writes.provisional.close(0.001)
