"""Follows a table: runs the step of the state it is in, fires the event the step returned, until a final state."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from transitions import Machine, MachineError

from machines.table import Table

logging.getLogger("transitions").setLevel(logging.WARNING)
log = logging.getLogger("interlock.driver")

Step = Callable[[Any], Awaitable[str]]


class Move(NamedTuple):
    """One entry of a trace; `ms` is how long the state that was left had lasted."""

    event: str
    source: Enum
    target: Enum
    ms: float


class Driven:
    """What a driven object carries: its table, its id for the log, its state, the event that led there, its trace."""

    def __init__(self, table: Table, id: str = "") -> None:  # noqa: A002 - it is what the log calls it
        self.table = table
        self.id = id
        self.state = table.initial
        self.event = ""
        self.trace: list[Move] = []
        self.entered = time.monotonic()
        self.interruption: str | None = None
        self.task: asyncio.Task[None] | None = None

    def moved(self, move: Move) -> None:
        """Hear of a move that was just made; must not raise."""


def fire(machine: Machine, driven: Driven, event: str) -> None:
    """Make the move of `event`, and record it. Raises MachineError, nothing changed, if no row allows it.

    What a callback raises is raised on, after the move was recorded.
    """
    known = machine.events.get(event)
    if known is None:
        msg = f"No row is named {event!r}."
        raise MachineError(msg)
    source, left = driven.state, time.monotonic()
    if source._name_ not in known.transitions:
        msg = f"No row lets {event!r} leave {source.name}."
        raise MachineError(msg)
    try:
        known.trigger(driven)
    finally:
        driven.event = event
        move = Move(event, source, driven.state, (left - driven.entered) * 1000)
        driven.trace.append(move)
        driven.entered = left
        driven.moved(move)


def interrupt(driven: Driven, event: str) -> None:
    """Let `event` end what the driven object is doing now; nothing happens if its state has no such row."""
    if driven.interruption is None and (event, driven.state) in driven.table.edges:
        driven.interruption = event
        if driven.task is not None:
            driven.task.cancel()


async def drive(driven: Driven, steps: Mapping[Any, Step], event_for: Mapping[type[Exception], str]) -> None:
    """Run steps until a final state. An exception `event_for` does not name is a crash, logged here once.

    An interruption wins over what the step returned, for a step may learn of it itself, as one that reads does.
    """
    driven.task = asyncio.current_task()
    while driven.state not in driven.table.final:
        event = _interruption(driven) or await _happened(driven, steps[driven.state], event_for)
        table = driven.table  # a step may have learned that another one is to be followed
        try:
            fire(table.machine, driven, _interruption(driven) or event)
        except Exception:
            log.exception("%s: the move %r failed while %s", driven.id, event, driven.state.value)
            fire(table.machine, driven, table.crashed)


def _interruption(driven: Driven) -> str | None:
    if driven.interruption is None:
        return None
    event, driven.interruption = driven.interruption, None
    return event if (event, driven.state) in driven.table.edges else None


async def _happened(driven: Driven, step: Step, event_for: Mapping[type[Exception], str]) -> str:
    table = driven.table
    try:
        return await step(driven)
    except asyncio.CancelledError:
        if driven.task is not None:
            driven.task.uncancel()
        if (table.cancelled, driven.state) in table.edges:
            return table.cancelled
        log.warning("%s: cancelled from outside while %s", driven.id, driven.state.value)
        return table.crashed
    except tuple(event_for) as error:
        log.warning("%s: %s: %s", driven.id, driven.state.value, error, exc_info=error.__cause__)
        return next(event_for[kind] for kind in type(error).__mro__ if kind in event_for)
    except Exception:
        log.exception("%s: crashed while %s", driven.id, driven.state.value)
        return table.crashed
