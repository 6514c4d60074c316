"""A write that does not end: its marker, and the model it lets go of."""

import asyncio
import gc
import math
import weakref

import pytest

from handlers.write import MOVES_KEPT
from handlers.writes import SWEEP_VISITS, Writes
from machines.write import State
from tests.storage.scripted import (
    FAR,
    HARD,
    NOW,
    SOFT,
    TTL,
    Script,
    begin,
    calm,
    holds_nothing,
    wedge,
)


async def test_past_the_hard_timeout_a_write_is_wedged_and_no_longer_pending(writes, script, time, caplog):
    wedge(writes, script, time)

    assert writes.is_wedged("resp_1")
    assert not writes.is_pending("resp_1")
    assert not writes.is_wedged("resp_2")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_late_write_wedges_too(writes, script, time):
    write = begin(writes, script)
    landing = asyncio.ensure_future(write.landed(SOFT))
    await calm()
    time.move(SOFT)
    await landing

    time.move(HARD - SOFT)

    assert writes.is_wedged("resp_1")


async def test_a_write_that_lands_in_time_is_never_wedged(writes, script, time):
    begin(writes, script)
    await script.land()

    time.move(HARD)

    assert not writes.is_wedged("resp_1")
    assert holds_nothing(writes, time)


async def test_asking_for_a_wedged_id_renews_its_marker(writes, script, time):
    wedge(writes, script, time)

    for _ in range(5):
        time.move(TTL - 1)
        assert writes.is_wedged("resp_1")


async def test_a_marker_nobody_asks_for_dies_after_its_time(writes, script, time):
    wedge(writes, script, time)

    time.move(TTL)

    assert not writes.is_wedged("resp_1")
    assert not writes.is_wedged("resp_1")


async def test_no_renewal_outlives_the_first_expiry_of_the_chain(writes, script, time):
    wedge(writes, script, time, expires_at=NOW + HARD + 500)

    time.move(250)
    assert writes.is_wedged("resp_1")
    time.move(249)
    assert writes.is_wedged("resp_1")
    time.move(1)

    assert not writes.is_wedged("resp_1")


async def test_a_marker_without_time_is_dead_at_once(make, script, time):
    writes = make(marker_ttl=0)
    wedge(writes, script, time)

    assert writes.earliest("resp_1") == 0
    assert not writes.is_wedged("resp_1")


async def test_a_row_that_lands_late_is_not_reported_wedged_and_its_marker_goes(writes, script, time):
    wedge(writes, script, time)

    await script.land()

    assert not writes.is_wedged("resp_1")
    assert holds_nothing(writes, time)


async def test_a_row_that_lands_after_its_marker_died_is_let_go(writes, script, time, model):
    write = wedge(writes, script, time, model=model)
    time.move(TTL)
    assert not writes.is_wedged("resp_1")
    assert writes.known == {}
    assert writes.held == 1

    await script.land()

    assert write.state is State.LANDED
    assert model.settled == 1
    assert holds_nothing(writes, time)


async def test_a_write_that_fails_after_its_marker_died_is_lost(writes, script, time):
    write = wedge(writes, script, time)
    time.move(TTL)
    writes.sweep()

    await script.fail()

    assert write.state is State.LOST
    assert holds_nothing(writes, time)


async def test_a_wedged_write_that_fails_is_written_again_when_asked_for(writes, script, time):
    wedge(writes, script, time)

    await script.fail()

    assert not writes.is_wedged("resp_1")
    assert writes.retry("resp_1")


async def test_a_waiter_of_a_write_that_wedges_waits_its_own_time(make, script, time):
    writes = make(hard_timeout=1.0)
    begin(writes, script)
    continuation = asyncio.ensure_future(writes.settled("resp_1", SOFT))
    await calm()

    time.move(1)
    await calm()
    assert not continuation.done()

    await script.land()
    assert await continuation is True


async def test_without_a_hard_timeout_a_write_stays_pending(make, script, time):
    writes = make(hard_timeout=0)
    begin(writes, script)

    time.move(10 * HARD)

    assert writes.is_pending("resp_1")
    assert not writes.is_wedged("resp_1")


async def test_the_expiry_of_the_chain_is_known_while_the_row_is_not(writes, script, time):
    assert writes.earliest("resp_1") is None

    writes.reserve("resp_1", FAR)
    assert writes.earliest("resp_1") == FAR

    writes.start("resp_1", script.write)
    assert writes.earliest("resp_1") == FAR

    time.move(HARD)
    assert writes.earliest("resp_1") == FAR

    time.move(TTL)
    assert writes.earliest("resp_1") == 0

    await script.land()
    assert writes.earliest("resp_1") is None


@pytest.mark.parametrize("unknown", [None, math.inf, -math.inf, math.nan])
async def test_an_expiry_that_is_no_number_is_unknown_and_caps_nothing(writes, script, time, unknown):
    wedge(writes, script, time, expires_at=unknown)

    assert writes.earliest("resp_1") is None
    time.move(TTL - 1)
    assert writes.is_wedged("resp_1")


async def test_a_sweep_visits_so_many_of_the_oldest_markers(writes, script, time):
    for number in range(SWEEP_VISITS + 10):
        begin(writes, script, f"resp_{number}")
    time.move(HARD)
    time.move(TTL)

    writes.sweep()
    assert len(writes.markers) == 10

    writes.sweep()
    assert writes.markers == {}


async def test_a_sweep_spends_its_visits_on_live_markers_too(writes, script, time):
    for number in range(SWEEP_VISITS):
        begin(writes, script, f"live_{number}")
    time.move(1)
    dies_first = begin(writes, script, "dead", expires_at=NOW + HARD + 10)
    time.move(HARD + 10)

    writes.sweep()

    assert dies_first.state is State.WEDGED
    assert len(writes.markers) == SWEEP_VISITS + 1


async def test_each_new_marker_sweeps_the_dead_ones(writes, script, time):
    wedge(writes, script, time, "resp_1")
    time.move(TTL)

    wedge(writes, script, time, "resp_2")

    assert [write.id for write in writes.markers] == ["resp_2"]


async def test_a_renewed_marker_is_swept_after_those_nobody_asked_for(writes, script, time):
    for response_id in ("resp_1", "resp_2"):
        wedge(writes, script, time, response_id)

    writes.is_wedged("resp_1")

    assert [write.id for write in writes.markers] == ["resp_2", "resp_1"]


async def test_clients_that_keep_retrying_make_nothing_grow(writes, script, time):
    write = wedge(writes, script, time)

    for _ in range(1000):
        assert writes.is_wedged("resp_1")

    assert len(write.trace) == MOVES_KEPT
    assert writes.held == 1


# The model a write retains


async def test_a_model_is_retained_until_the_row_has_landed(writes, script, time, model):
    begin(writes, script, model=model)
    await calm()
    time.move(HARD - 1)
    assert model.releases == []

    await script.land()

    assert model.releases == [False]
    assert model.settled == 0


async def test_the_soft_timeout_does_not_let_the_model_go(writes, script, time, model):
    landing = asyncio.ensure_future(begin(writes, script, model=model).landed(SOFT))
    await calm()

    time.move(SOFT)
    await landing

    assert model.releases == []


async def test_a_wedged_write_does_not_pin_the_model_and_tells_when_it_has_ended(writes, script, time, model):
    wedge(writes, script, time, model=model)
    assert model.releases == [True]

    for _ in range(3):
        assert writes.is_wedged("resp_1")
    assert model.settled == 0

    await script.land()
    assert model.releases == [True]
    assert model.settled == 1


async def test_a_wedged_write_that_fails_tells_so_once_however_often_it_is_tried_again(writes, script, time, model):
    wedge(writes, script, time, model=model)

    for _ in range(3):
        await script.fail()
        assert model.settled == 1
        writes.retry("resp_1")

    await script.land()
    assert model.releases == [True]
    assert model.settled == 1


async def test_overlapping_wedged_writes_of_one_model_are_let_go_one_by_one(writes, time, model):
    scripts = [Script() for _ in range(3)]
    for number, script in enumerate(scripts):
        begin(writes, script, f"resp_{number}", model=model)
    await calm()
    time.move(HARD)
    assert model.releases == [True] * 3

    for ended, script in enumerate(scripts, start=1):
        await script.land()
        assert model.settled == ended
    assert holds_nothing(writes, time)


async def test_without_a_breaker_a_write_that_never_ends_lets_the_model_go_at_the_soft_timeout(
    make, script, time, model
):
    writes = make(hard_timeout=0)
    landing = asyncio.ensure_future(begin(writes, script, model=model).landed(SOFT))
    await calm()

    time.move(SOFT)
    await landing
    assert model.releases == [True]

    await script.land()
    assert model.releases == [True]
    assert model.settled == 1


async def test_a_model_that_cannot_be_let_go_does_not_keep_the_write(writes, script, time, caplog):
    class Broken:
        def release(self, wedged):
            raise ZeroDivisionError

    writes.reserve("resp_1", FAR)
    writes.start("resp_1", script.write, Broken())

    await script.land()

    assert holds_nothing(writes, time)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_what_has_ended_is_not_kept_alive(writes, script):
    write = weakref.ref(begin(writes, script))

    await script.land()
    script.attempts.clear()
    gc.collect()

    assert write() is None


async def test_the_loop_keeps_time_unless_told_otherwise(monkeypatch):
    tripped = asyncio.Event()
    trip = Writes.trip
    monkeypatch.setattr(Writes, "trip", lambda *given: trip(*given) or tripped.set())
    writes, script = Writes(hard_timeout=0.001), Script()
    begin(writes, script, expires_at=None)

    assert await writes.settled("resp_1", 0) is False
    await tripped.wait()
    assert writes.is_wedged("resp_1")

    await script.land()
    assert writes.held == 0
