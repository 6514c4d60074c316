"""One row on its way to the store: what it holds while it is written, and who waits for it."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from transitions import EventData

from handlers.timers import Timer, Waiters
from machines.driver import Driven, Move, fire
from machines.write import FINAL, MACHINE, WRITE, State

if TYPE_CHECKING:
    from handlers.writes import Writes

log = logging.getLogger("interlock.writes")

MOVES_KEPT = 8  # of a write's trace: clients that keep retrying must not make it grow

Attempt = Callable[[], Awaitable[None]]
Outcome = Literal["row_written", "row_lost", "row_late"]
OUTCOMES: dict[State, Outcome] = {State.LANDED: "row_written", State.FAILED: "row_lost", State.LOST: "row_lost"}


class Retain(Protocol):
    """What keeps a model's instance id in use while a row that carries it is being written."""

    def release(self, wedged: bool) -> None:  # noqa: FBT001  always passed by name
        """Let go of the model, once. The row of a wedged write may still land, so its instance id must live on."""


class Write(Driven):
    """Follows the write machine for one row; callbacks hold and let go. `expires_at` is the end of its whole chain."""

    state: State
    attempt: Attempt
    retain: Retain | None = None
    on_settled: Callable[[], None] | None = None
    breaker: Timer | None = None
    started = 0.0  # by the monotonic clock: when its last attempt began
    marked_until = -math.inf

    def __init__(self, writes: "Writes", response_id: str, expires_at: float | None) -> None:
        super().__init__(WRITE)
        self.id = response_id
        self.expires_at = expires_at
        self._writes = writes
        self._waiters = Waiters(writes.call_later)

    def move(self, event: str) -> None:
        """Fire `event`, and forget the oldest moves."""
        fire(MACHINE, self, event)
        del self.trace[:-MOVES_KEPT]

    def moved(self, move: Move) -> None:
        self._writes.heard(self, move)

    async def landed(self, soft_timeout: float) -> Outcome:
        """Wait for the row, but not longer than `soft_timeout` seconds; a late write goes on by itself."""
        await self.wait(soft_timeout)
        if self.state is State.IN_FLIGHT:
            log.warning("the write of %s takes longer than %g s; it goes on by itself", self.id, soft_timeout)
            self.move("soft_timeout_passed")
        return OUTCOMES.get(self.state, "row_late")

    async def wait(self, seconds: float) -> None:
        """Wait until the write has an end, if only a failed one, or `seconds` have passed."""
        if self.state not in FINAL and self.state is not State.FAILED:
            await self._waiters.wait(seconds)

    def arm_breaker(self, _: EventData) -> None:
        self.started = time.monotonic()
        if self._writes.hard_timeout > 0:
            self.breaker = self._writes.call_later(self._writes.hard_timeout, partial(self._writes.trip, self))

    def disarm_breaker(self, _: EventData) -> None:
        if self.breaker is not None:
            self.breaker.cancel()
            self.breaker = None

    def mark(self, _: EventData) -> None:
        renewed = self._writes.clock() + self._writes.marker_ttl
        self.marked_until = renewed if self.expires_at is None else min(renewed, self.expires_at)
        self._writes.markers[self] = None

    def unmark(self, _: EventData) -> None:
        self._writes.markers.pop(self)

    def keep(self, _: EventData) -> None:
        self._writes.failed[self] = None

    def unkeep(self, _: EventData) -> None:
        self._writes.failed.pop(self)

    def forget(self, _: EventData) -> None:
        if self._writes.known.get(self.id) is self:
            del self._writes.known[self.id]

    def wake(self, _: EventData) -> None:
        self._waiters.wake()

    def let_go_if_unguarded(self, event: EventData) -> None:
        if self._writes.hard_timeout <= 0:  # no breaker will, and a write that never ends must not pin a model
            self.let_go(event)

    def let_go(self, _: EventData | None = None) -> None:
        has_ended = self.state not in {State.LATE, State.WEDGED}
        retain, self.retain = self.retain, None
        if retain is not None:
            _tell(partial(retain.release, wedged=not has_ended))
        elif has_ended and self.on_settled is not None:
            _tell(self.on_settled)
        if has_ended:
            self.on_settled = None


def _tell(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception:
        log.exception("a model could not be let go of")
