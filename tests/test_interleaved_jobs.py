"""Readers of one job that come and go while its store is slow, fails or hangs: what each was told, in any order."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from handlers.jobs import Job, Keeping
from handlers.mapping.to_response import Ending, Head, to_response
from handlers.wire.events import TERMINAL, Failed, Incomplete, TextDelta
from handlers.wire.request import CreateResponse
from machines.job import FINAL, MACHINE, State
from storage.errors import WriteError

NAMES = {"response.completed", "response.incomplete", "response.failed"}
places = st.integers(-1, 12)
steps = st.lists(
    st.sampled_from(["put", "beat", "answer", "answer", "fail", "turn", "turn"])
    | st.tuples(st.sampled_from(["come", "leave"]), places),
    max_size=20,
)
HEAD = Head(id="resp_1", created_at=1, instructions=None, request=CreateResponse(), store=True)


class Disk:
    """A store whose every call waits until it is answered, or made to fail."""

    def __init__(self):
        self.asked = []
        self.kept = []
        self.row = None

    async def _wait(self):
        answered = asyncio.get_running_loop().create_future()
        self.asked.append(answered)
        await answered

    async def begin_job(self, row):
        self.row = row

    async def tell(self, rows):
        await self._wait()
        self.kept += rows

    async def end_job(self, row, rows):
        await self._wait()
        self.row, self.kept = row, self.kept + rows

    def answer(self, error=None):
        if self.asked:
            answered = self.asked.pop(0)
            answered.set_exception(error) if error else answered.set_result(None)


class Reader:
    """Reads from a place on, and notes what the store had each time."""

    def __init__(self, job, disk, after):
        self.after = after
        self.told = []
        self.was_kept = True
        self.task = asyncio.create_task(self._read(job, disk))

    async def _read(self, job, disk):
        async for row in job.journal.read(self.after):
            self.told.append(row.number)
            self.was_kept = self.was_kept and (job.journal.told <= len(disk.kept) or job.journal._is_closed)


class World:
    def __init__(self):
        self.disk = Disk()
        self.forgotten = []
        self.readers, self.left = [], []
        keeping = Keeping(store=self.disk, expiry=lambda: 9, patience=60, forget=lambda: self.forgotten.append(1))
        self.job = Job(HEAD, [], keeping)

    async def do(self, step):
        name, *given = [step] if isinstance(step, str) else step
        await getattr(self, name)(*given)
        await self.turn()

    async def turn(self):
        for _ in range(3):
            await asyncio.sleep(0)

    async def put(self):
        await self.job.journal.put(TextDelta("msg_1", 0, 0, "a"))

    async def beat(self):
        await self.job.beat()

    async def answer(self):
        self.disk.answer()

    async def fail(self):
        self.disk.answer(WriteError("disk full"))

    async def come(self, after):
        self.readers.append(Reader(self.job, self.disk, after))

    async def leave(self, index):
        if 0 <= index < len(self.readers):
            self.left.append(self.readers.pop(index))
            self.left[-1].task.cancel()

    async def settle(self):
        """Let the store take everything."""
        while self.disk.asked or not (self.job._ending.done() and self.forgotten):
            self.disk.answer()
            if self.job._ending.done() and not self.forgotten:
                await self.job.keep()
            await asyncio.sleep(0)


def to_ending(status):
    ending = Ending(status=status)
    kinds = {"cancelled": Incomplete, "failed": Failed}
    return kinds.get(status, TERMINAL.get(f"response.{status}"))(to_response(HEAD, ending))


async def play(before, after, status):
    world = World()
    await world.job.begin()
    world.job._keeping = replace(world.job._keeping, patience=0.001)
    for step in before:
        await world.do(step)
    if status in {"completed", "incomplete"}:
        await world.job.take()
    ending = asyncio.create_task(world.job.end(to_ending(status)))
    for step in after:
        await world.do(step)
    await ending
    late = [Reader(world.job, world.disk, place) for place in (-1, 3, 50)]
    async with asyncio.timeout(20):
        for reader in [*world.readers, *late]:
            await reader.task
        await world.settle()
    return world, late


def to_due(reader, last):
    """Give the numbers that a reader is to be told: those beyond its place, and the last one in any case."""
    return list(range(reader.after + 1, last + 1)) or [last]


@settings(max_examples=100, deadline=None)
@given(before=steps, after=steps.map(lambda steps: [step for step in steps if step not in ("put", "beat")]),
       status=st.sampled_from(["completed", "incomplete", "failed", "cancelled"]))  # fmt: skip
def test_every_reader_is_told_all_there_is_beyond_its_place_and_the_end(before, after, status):
    world, late = asyncio.run(play(before, after, status))

    last = world.job.journal.count - 1
    for reader in [*world.readers, *late]:
        assert reader.told == to_due(reader, last)
    for reader in world.left:
        assert reader.told == to_due(reader, last)[: len(reader.told)]
    assert all(reader.was_kept for reader in [*world.readers, *world.left, *late])
    assert world.job.state in FINAL
    assert world.job.state is State(status)
    assert MACHINE.get_triggers(world.job.state) == []


@settings(max_examples=100, deadline=None)
@given(before=steps, status=st.sampled_from(["completed", "failed", "cancelled"]))
def test_what_the_store_has_in_the_end_is_what_was_told(before, status):
    world, _ = asyncio.run(play(before, [], status))

    assert world.disk.kept == world.job.journal.rows
    assert [row.number for row in world.disk.kept] == list(range(len(world.disk.kept)))
    assert [row.name in NAMES for row in world.disk.kept].count(True) == 1
    assert world.disk.kept[-1].name in NAMES
    assert world.disk.row.status == status
