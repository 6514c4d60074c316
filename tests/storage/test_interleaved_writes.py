"""Requests, continuations, a scripted store and time, in any order."""

import asyncio
import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handlers.writes import Writes
from machines.write import FINAL, State
from tests.storage.scripted import (
    HARD,
    SOFT,
    TTL,
    FakeTime,
    Model,
    Script,
    calm,
    holds_nothing,
    raising,
)


class Interleavings(RuleBasedStateMachine):
    """Requests, continuations, a scripted store and time, in any order."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.time = FakeTime()
        self.scripts, self.models, self.seen = {}, {}, {}
        self.landed, self.waiting, self.numbers = set(), [], itertools.count()

    @initialize(hard=st.sampled_from([0.0, 1.0, HARD]), ttl=st.sampled_from([0.0, 1.0, TTL]))
    def open(self, hard, ttl):
        self.writes = Writes(hard, ttl, self.time.clock, self.time.call_later)

    def run(self, step=calm):
        async def stepped():
            await step()
            await calm()

        self.loop.run_until_complete(stepped())

    def chosen(self, data, *states):
        known = [one for one, write in self.writes.known.items() if write.state in states]
        return data.draw(st.sampled_from(sorted(known))) if known else None

    @rule(life=st.sampled_from([None, 5.0, 100.0, 1e6]))
    def reserve(self, life):
        response_id = f"resp_{next(self.numbers)}"
        self.writes.reserve(response_id, None if life is None else self.time.now + life)
        self.seen[response_id] = self.writes.known[response_id]

    @rule(data=st.data())
    def deliver_nothing(self, data):
        if response_id := self.chosen(data, State.RESERVED):
            self.writes.release(response_id)
            assert not self.writes.is_pending(response_id)

    @rule(data=st.data(), at_once=st.sampled_from([False, False, True]), waits=st.booleans())
    def start(self, data, at_once, waits):
        if response_id := self.chosen(data, State.RESERVED):
            script, model = self.scripts.setdefault(response_id, Script()), Model()
            self.models[response_id] = model

            async def started():
                attempt = raising(OSError("full")) if at_once else script.write
                write = self.writes.start(response_id, attempt, model, model.settle)
                if waits:
                    self.waiting.append(asyncio.ensure_future(write.landed(SOFT)))

            self.run(started)

    @rule(data=st.data(), lands=st.booleans())
    def answer(self, data, lands):
        running = {write.id: self.scripts[write.id].attempts[-1] for write in self.writes.running.values()}
        if running:
            response_id = data.draw(st.sampled_from(sorted(running)))

            async def answered():
                if lands:
                    self.landed.add(response_id)
                    running[response_id].set_result(None)
                else:
                    running[response_id].set_exception(OSError("full"))

            self.run(answered)

    @rule(data=st.data(), patience=st.sampled_from([0.0, 1.0, SOFT]))
    def continue_from(self, data, patience):
        if self.seen:
            response_id = data.draw(st.sampled_from(sorted(self.seen)))

            async def continued():
                if self.writes.is_pending(response_id) or self.writes.retry(response_id):
                    self.waiting.append(asyncio.ensure_future(self.writes.settled(response_id, patience)))
                elif self.writes.is_wedged(response_id):
                    assert response_id not in self.landed

            self.run(continued)

    @rule(seconds=st.sampled_from([0.5, 1.0, SOFT, HARD, TTL]))
    def move(self, seconds):
        async def moved():
            self.time.move(seconds)

        self.run(moved)

    @rule(data=st.data())
    def leave(self, data):
        if self.waiting:
            data.draw(st.sampled_from(self.waiting)).cancel()
            self.run()

    @rule()
    def sweep(self):
        async def swept():
            self.writes.sweep()

        self.run(swept)

    @invariant()
    def an_id_is_pending_or_wedged_or_neither(self):
        for write in self.seen.values():
            states = [self.writes.is_pending(write.id), write in self.writes.markers, write in self.writes.failed]
            assert sum(states) <= 1

    @invariant()
    def a_row_that_landed_is_known_no_more(self):
        assert not self.landed & self.writes.known.keys()

    @invariant()
    def a_row_that_may_still_land_is_pending_or_wedged_until_its_marker_dies(self):
        for write in self.writes.running.values():
            assert write.state is State.EXPIRED or self.writes.known[write.id] is write

    @invariant()
    def a_model_is_released_at_most_once_and_told_of_the_end_only_after_a_wedge(self):
        for model in self.models.values():
            assert len(model.releases) <= 1
            assert model.settled <= model.releases.count(True)

    @invariant()
    def nothing_is_held_that_has_ended(self):
        ended = {write for write in self.seen.values() if write.state in FINAL}
        held = {*self.writes.known.values(), *self.writes.running.values(), *self.writes.markers, *self.writes.failed}
        assert not ended & held

    async def end(self):
        for response_id in list(self.writes.known):
            self.writes.release(response_id)
        while self.writes.running or self.writes.failed:
            for failed in self.writes.failed:
                failed.attempt = self.scripts[failed.id].write
            self.writes.sweep()
            await calm()
            for running in self.writes.running.values():
                self.scripts[running.id].attempts[-1].set_result(None)
            await calm()
        self.time.move(SOFT)
        await asyncio.gather(*self.waiting, return_exceptions=True)

    def teardown(self):
        self.run(self.end)
        self.loop.close()
        assert holds_nothing(self.writes, self.time)
        for model in self.models.values():
            assert len(model.releases) == 1
            assert model.settled == model.releases.count(True)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
