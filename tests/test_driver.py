"""Drives a table of three steps: what a step may do, and what may be done to it."""

import asyncio
import logging
from enum import Enum

import pytest
from transitions import MachineError

from machines.driver import Driven, drive, fire, interrupt
from machines.table import Table


class Book(Enum):
    OPENING = "opening"
    READING = "reading"
    CLOSING = "closing"
    SHELVED = "shelved"
    LEFT = "left"
    TORN = "torn"


TABLE = Table(
    "book",
    Book,
    Book.OPENING,
    frozenset({Book.SHELVED, Book.LEFT, Book.TORN}),
    [
        ["opened", Book.OPENING, Book.READING],
        ["read", Book.READING, Book.CLOSING],
        ["closed", Book.CLOSING, Book.SHELVED],
        ["page_missing", Book.READING, Book.TORN],
        ["client_gone", [Book.OPENING, Book.READING], Book.LEFT],
        ["crashed", [Book.OPENING, Book.READING, Book.CLOSING], Book.TORN],
    ],
    {Book.READING: {"on_enter": "take_lamp", "on_exit": "leave_lamp"}},
)
MACHINE = TABLE.machine
EVENT_FOR = {OSError: "page_missing"}


class Reader(Driven):
    def __init__(self):
        super().__init__(TABLE)
        self.lamps = []
        self.seen = []

    def take_lamp(self, _):
        self.lamps.append("taken")

    def leave_lamp(self, _):
        self.lamps.append("left")

    @property
    def path(self):
        return [move[:3] for move in self.trace]


def says(event):
    async def step(reader):
        reader.seen.append(reader.state)
        return event

    return step


def raises(error):
    async def step(_):
        raise error

    return step


def waits(event="read"):
    """Make a step that waits to be let go, the sign that it is waiting, and the sign that lets it go."""
    waiting, let_go = asyncio.Event(), asyncio.Event()

    async def step(reader):
        waiting.set()
        try:
            await let_go.wait()
        finally:
            reader.seen.append("tidied")
        return event

    return step, waiting, let_go


def steps(**others):
    plain = {Book.OPENING: says("opened"), Book.READING: says("read"), Book.CLOSING: says("closed")}
    return plain | {Book[name.upper()]: step for name, step in others.items()}


async def driven(reader=None, **others):
    reader = reader or Reader()
    await drive(reader, steps(**others), EVENT_FOR)
    return reader


async def started(step, waiting, **others):
    """Start a drive and come back when its step is waiting."""
    reader = Reader()
    task = asyncio.create_task(driven(reader, **{step[0]: step[1]}, **others))
    await waiting.wait()
    return reader, task


async def test_steps_run_in_the_order_of_the_table():
    reader = await driven()

    assert reader.seen == [Book.OPENING, Book.READING, Book.CLOSING]
    assert reader.state is Book.SHELVED


async def test_the_trace_tells_each_move():
    reader = await driven()

    assert reader.path == [
        ("opened", Book.OPENING, Book.READING),
        ("read", Book.READING, Book.CLOSING),
        ("closed", Book.CLOSING, Book.SHELVED),
    ]
    assert all(move.ms >= 0 for move in reader.trace)


async def test_the_last_event_stays_with_the_driven_object():
    assert (await driven()).event == "closed"


async def test_what_is_already_final_runs_no_step():
    reader = Reader()
    reader.state = Book.SHELVED

    await driven(reader)

    assert reader.seen == []
    assert reader.trace == []


async def test_an_error_that_is_named_becomes_its_event(caplog):
    reader = await driven(reading=raises(FileNotFoundError("page 7")))

    assert reader.path[-1] == ("page_missing", Book.READING, Book.TORN)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_an_error_that_is_not_named_is_a_crash_and_logged_once(caplog):
    error = KeyError("page 7")

    reader = await driven(reading=raises(error))

    assert reader.path[-1] == ("crashed", Book.READING, Book.TORN)
    assert [(record.levelno, record.exc_info[1]) for record in caplog.records] == [(logging.ERROR, error)]


async def test_a_named_error_where_its_event_has_no_row_is_a_crash():
    reader = await driven(closing=raises(OSError("jammed")))

    assert reader.path[-1] == ("crashed", Book.CLOSING, Book.TORN)


@pytest.mark.parametrize("event", ["closed", "burnt"])
async def test_an_event_without_a_row_is_a_crash_and_logged_once(event, caplog):
    reader = await driven(reading=says(event))

    assert reader.path[-1] == ("crashed", Book.READING, Book.TORN)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("step", [says("read"), says("burnt"), raises(OSError()), raises(KeyError())])
async def test_what_a_state_holds_is_let_go_however_it_is_left(step):
    reader = await driven(reading=step)

    assert reader.lamps == ["taken", "left"]


async def test_an_interruption_before_the_start_runs_no_step():
    reader = Reader()

    interrupt(reader, "client_gone")
    await driven(reader)

    assert reader.seen == []
    assert reader.path == [("client_gone", Book.OPENING, Book.LEFT)]


async def test_an_interruption_ends_the_step_that_waits():
    step, waiting, _ = waits()
    reader, task = await started(("reading", step), waiting)

    interrupt(reader, "client_gone")
    await task

    assert reader.path[-1] == ("client_gone", Book.READING, Book.LEFT)
    assert reader.seen == [Book.OPENING, "tidied"]
    assert reader.lamps == ["taken", "left"]


async def test_an_interrupted_drive_is_not_a_cancelled_task():
    step, waiting, _ = waits()
    reader, task = await started(("reading", step), waiting)

    interrupt(reader, "client_gone")
    await task

    assert not task.cancelled()
    assert task.cancelling() == 0


async def test_any_event_of_the_state_may_interrupt_it():
    step, waiting, _ = waits()
    reader, task = await started(("reading", step), waiting)

    interrupt(reader, "page_missing")
    await task

    assert reader.path[-1] == ("page_missing", Book.READING, Book.TORN)


async def test_an_interruption_is_ignored_by_a_state_without_its_row():
    step, waiting, let_go = waits("closed")
    reader, task = await started(("closing", step), waiting)

    interrupt(reader, "client_gone")
    let_go.set()
    await task

    assert reader.path[-1] == ("closed", Book.CLOSING, Book.SHELVED)


async def test_only_the_first_interruption_counts():
    step, waiting, _ = waits()
    reader, task = await started(("reading", step), waiting)

    interrupt(reader, "client_gone")
    interrupt(reader, "page_missing")
    await task

    assert reader.path[-1] == ("client_gone", Book.READING, Book.LEFT)
    assert task.cancelling() == 0


async def test_an_interruption_after_the_end_is_ignored():
    reader = await driven()

    interrupt(reader, "client_gone")

    assert reader.state is Book.SHELVED
    assert len(reader.trace) == 3


async def test_a_task_cancelled_from_outside_is_a_client_that_left():
    step, waiting, _ = waits()
    reader, task = await started(("reading", step), waiting)

    task.cancel()
    await task

    assert reader.path[-1] == ("client_gone", Book.READING, Book.LEFT)
    assert reader.seen == [Book.OPENING, "tidied"]


async def test_a_task_cancelled_where_no_client_may_leave_is_a_crash():
    step, waiting, _ = waits()
    reader, task = await started(("closing", step), waiting)

    task.cancel()
    await task

    assert reader.path[-1] == ("crashed", Book.CLOSING, Book.TORN)


async def test_a_step_that_cancels_itself_is_a_client_that_left():
    async def step(reader):
        reader.task = None
        raise asyncio.CancelledError

    reader = await driven(reading=step)

    assert reader.state is Book.LEFT


async def test_a_hundred_drives_share_one_machine():
    together = asyncio.Barrier(100)

    async def step(reader):
        await together.wait()
        reader.seen.append(reader.state)
        return "read"

    readers = await asyncio.gather(*(driven(reading=step) for _ in range(100)))

    assert all(reader.state is Book.SHELVED for reader in readers)
    assert all(reader.seen == [Book.OPENING, Book.READING, Book.CLOSING] for reader in readers)
    assert all(reader.lamps == ["taken", "left"] for reader in readers)


@pytest.mark.parametrize("event", ["closed", "burnt", "to_SHELVED"])
def test_an_illegal_event_is_raised_and_the_state_stays(event):
    reader = Reader()

    with pytest.raises(MachineError):
        fire(MACHINE, reader, event)

    assert reader.state is Book.OPENING
    assert reader.trace == []


async def test_a_callback_that_breaks_is_a_crash_of_the_state_it_was_entering(caplog):
    class Clumsy(Reader):
        def take_lamp(self, _):
            raise ZeroDivisionError

    reader = Clumsy()

    await drive(reader, {Book.OPENING: says("opened")}, EVENT_FOR)

    assert reader.state is Book.TORN
    assert [move[:3] for move in reader.trace] == [
        ("opened", Book.OPENING, Book.READING),
        ("crashed", Book.READING, Book.TORN),
    ]
    assert "ZeroDivisionError" in caplog.text
