"""Rows written before their terminal event: requests, continuations, a store and time, in any order."""

import asyncio
import itertools
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handlers.writes import Writes
from storage.errors import WriteError
from tests.storage.scripted import HARD, SOFT, TTL, FakeTime, calm, holds_nothing


class Disk:
    """Puts and deletes rows when a test says so; `rows` is what is on it."""

    def __init__(self):
        self.rows = set()
        self.asked = []  # (response id, future) of each put and delete that has not ended

    async def put(self, response_id):
        await self._answer(response_id)
        self.rows.add(response_id)

    async def delete(self, response_id):
        await self._answer(response_id)
        self.rows.discard(response_id)

    async def _answer(self, response_id):
        asked = response_id, asyncio.get_running_loop().create_future()
        self.asked.append(asked)
        try:
            await asked[1]
        finally:
            self.asked.remove(asked)


class Withdrawals(RuleBasedStateMachine):
    """What the store has and what may be read of it."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.time, self.disk = FakeTime(), Disk()
        self.numbers = itertools.count()
        self.undecided, self.kept, self.gone = set(), set(), set()
        self.waiting = []

    @initialize(hard=st.sampled_from([0.0, 1.0, HARD]), ttl=st.sampled_from([0.0, 1.0, TTL]))
    def open(self, hard, ttl):
        self.writes = Writes(hard, ttl, self.time.clock, self.time.call_later)

    def run(self, step=None):
        async def stepped():
            if step is not None:
                step()
            await calm()

        self.loop.run_until_complete(stepped())

    def chosen(self, data, ids):
        return data.draw(st.sampled_from(sorted(ids))) if ids else None

    @rule(waits=st.booleans(), life=st.sampled_from([None, 5.0, 1e6]))
    def persist(self, waits, life):
        response_id = f"resp_{next(self.numbers)}"
        self.undecided.add(response_id)

        def persisted():
            self.writes.reserve(response_id, None if life is None else self.time.now + life)
            self.writes.provisional.hold(response_id, self.disk.delete)
            write = self.writes.start(response_id, partial(self.disk.put, response_id))
            if waits:
                self.waiting.append(asyncio.ensure_future(write.landed(SOFT)))

        self.run(persisted)

    @rule(data=st.data())
    def deliver(self, data):
        if response_id := self.chosen(data, self.undecided):
            self.undecided.remove(response_id)
            self.kept.add(response_id)

            def delivered():
                self.writes.provisional.keep(response_id)
                self.writes.release(response_id)

            self.run(delivered)

    @rule(data=st.data())
    def lose(self, data):
        if response_id := self.chosen(data, self.undecided):
            self.undecided.remove(response_id)
            self.gone.add(response_id)
            self.run(partial(self.writes.release, response_id))

    @rule(data=st.data(), well=st.booleans())
    def answer(self, data, well):
        if self.disk.asked:
            _, future = data.draw(st.sampled_from(self.disk.asked))
            self.run(partial(future.set_result, None) if well else partial(future.set_exception, WriteError("full")))

    @rule(data=st.data(), patience=st.sampled_from([0.0, 1.0, SOFT]))
    def continue_from(self, data, patience):
        if response_id := self.chosen(data, self.undecided | self.kept | self.gone):

            def continued():
                if self.writes.is_pending(response_id) or self.writes.retry(response_id):
                    self.waiting.append(asyncio.ensure_future(self.writes.settled(response_id, patience)))
                else:
                    self.writes.is_wedged(response_id)

            self.run(continued)

    @rule(seconds=st.sampled_from([1.0, SOFT, HARD, TTL]))
    def move(self, seconds):
        self.run(partial(self.time.move, seconds))

    @rule()
    def sweep(self):
        self.run(self.writes.sweep)

    @invariant()
    def a_row_is_readable_only_if_its_terminal_event_left(self):
        readable = {one for one in self.disk.rows if not self.writes.provisional.hides(one)}
        assert readable <= self.kept

    @invariant()
    def a_row_whose_terminal_event_may_still_leave_is_waited_for(self):
        assert all(self.writes.is_pending(one) for one in self.undecided)

    @invariant()
    def a_row_whose_terminal_event_never_left_is_not_waited_for(self):
        assert not any(self.writes.is_pending(one) or self.writes.is_wedged(one) for one in self.gone)

    @invariant()
    def a_row_that_was_kept_is_never_deleted(self):
        assert not any(self.writes.provisional.hides(one) for one in self.kept)

    def teardown(self):
        for response_id in list(self.undecided):
            self.lose_all(response_id)
        while self.disk.asked or self.writes.failed or self.writes.provisional.known:
            for _, future in list(self.disk.asked):
                self.run(partial(future.set_result, None))
            self.run(self.writes.sweep)
        self.run(partial(self.time.move, SOFT))
        self.loop.close()
        assert holds_nothing(self.writes, self.time)
        assert not self.disk.rows & self.gone

    def lose_all(self, response_id):
        self.gone.add(response_id)
        self.run(partial(self.writes.release, response_id))


TestWithdrawals = Withdrawals.TestCase
TestWithdrawals.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
