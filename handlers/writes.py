"""The rows on their way to the store: whom to tell to wait, and whom to tell to retry."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from itertools import islice

from handlers.provisional import ProvisionalRows
from handlers.timers import CallLater, call_later
from handlers.write import Attempt, Retain, Write
from machines.driver import Move
from machines.write import FINAL, State

log = logging.getLogger("interlock.writes")

SWEEP_VISITS = 64
FAILED_KEPT = 64  # rows held in memory; the oldest is given up for one more
PENDING = frozenset({State.RESERVED, State.IN_FLIGHT, State.LATE})


class Writes:
    """Every write from its reservation to its end. Times are in seconds, `clock` in Unix time, as rows expire by it.

    `hard_timeout` 0 never wedges a write; `marker_ttl` 0 lets a wedged one be unknown at once.
    """

    def __init__(
        self,
        hard_timeout: float = 60.0,
        marker_ttl: float = 300.0,
        clock: Callable[[], float] = time.time,
        call_later: CallLater = call_later,
    ) -> None:
        self.hard_timeout = hard_timeout
        self.marker_ttl = marker_ttl
        self.clock = clock
        self.call_later = call_later
        self.known: dict[str, Write] = {}
        self.markers: dict[Write, None] = {}  # the least recently renewed first
        self.failed: dict[Write, None] = {}  # the oldest first
        self.running: dict[asyncio.Future[None], Write] = {}
        self.provisional = ProvisionalRows(self.attempts, self.give_up, call_later)
        self.heard: Callable[[Write, Move], None] = lambda _, __: None

    @property
    def unended(self) -> set[Write]:
        """The writes that have not come to their end."""
        return {*self.known.values(), *self.running.values()}

    @property
    def held(self) -> int:
        """How many writes have not come to their end."""
        return len(self.unended)

    def reserve(self, response_id: str, earliest_expires_at: float | None) -> None:
        """Have whoever names the id wait from now on; nothing happens if the id is known already."""
        is_finite = earliest_expires_at is not None and math.isfinite(earliest_expires_at)
        if response_id not in self.known:
            self.known[response_id] = Write(self, response_id, earliest_expires_at if is_finite else None)

    def release(self, response_id: str) -> None:
        """Give a reservation back, for its terminal never left.

        Once the write has started, nothing happens unless the row is provisional: then it is withdrawn.
        """
        is_withdrawn = self.provisional.withdraw(response_id)
        write = self.known.get(response_id)
        if write is not None and write.state is State.RESERVED:
            write.move("terminal_undelivered")
        elif write is not None and is_withdrawn:  # nobody will ask which instance made a row that is to be deleted
            write.let_go()

    def start(
        self,
        response_id: str,
        attempt: Attempt,
        retain: Retain | None = None,
        on_settled: Callable[[], None] | None = None,
    ) -> Write:
        """Start the write of a reserved id as a task of its own; never raises what `attempt` does, now or later.

        A failed attempt is made again, so `attempt` should hold nothing but the row. `retain` is released once.
        `on_settled` is called once, but only for a write that was wedged at its release and has ended after all.
        """
        write = self.known[response_id]
        write.attempt, write.retain, write.on_settled = attempt, retain, on_settled
        self._try(write, "write_started")
        return write

    def is_pending(self, response_id: str) -> bool:
        """Whether the row may land, or be shown, any moment."""
        if self.provisional.hides(response_id):
            return self.provisional.is_undecided(response_id)
        write = self.known.get(response_id)
        return write is not None and write.state in PENDING

    def is_wedged(self, response_id: str) -> bool:
        """Whether the id has a live marker; to ask renews it."""
        write = self.known.get(response_id)
        if write is None or write.state is not State.WEDGED or self.provisional.hides(response_id):
            return False
        is_live = self.clock() < write.marked_until
        write.move("marker_renewed" if is_live else "marker_expired")
        return is_live

    def retry(self, response_id: str) -> bool:
        """Write a failed row again; False if none is kept under that id, or nobody is to find it."""
        write = self.known.get(response_id)
        if write is None or write.state is not State.FAILED or self.provisional.hides(response_id):
            return False
        return self._retry(write)

    async def settled(self, response_id: str, seconds: float) -> bool:
        """Wait until the store must know the id's fate; False if the write failed or takes longer than `seconds`."""
        began = time.monotonic()
        if not await self.provisional.decided(response_id, seconds):
            return False
        write = self.known.get(response_id)
        if write is None or self.provisional.hides(response_id):
            return True
        await write.wait(seconds - (time.monotonic() - began))
        return write.state in FINAL

    def earliest(self, response_id: str) -> float | None:
        """When the first row of the id's chain expires; 0 behind a dead marker, None if unknown."""
        write = self.known.get(response_id)
        if write is None:
            return None
        is_dead = write.state is State.WEDGED and self.clock() >= write.marked_until
        return 0.0 if is_dead else write.expires_at

    def sweep(self) -> None:
        """Forget dead markers, and try again what failed."""
        self.provisional.sweep()
        self._sweep_markers()
        for write in list(self.failed):
            self._retry(write)

    def attempts(self, response_id: str) -> list[asyncio.Future[None]]:
        """Give what may still write the row, whatever has become of its id."""
        return [running for running, write in self.running.items() if write.id == response_id]

    def discard(self, response_id: str) -> bool:
        """Forget a row that could not be written, for nobody wants it; False if none is kept that may be found."""
        return not self.provisional.hides(response_id) and self.give_up(response_id)

    def give_up(self, response_id: str) -> bool:
        """Forget a row that could not be written; False if it could be, or is unknown."""
        write = self.known.get(response_id)
        if write is None or write.state is not State.FAILED:
            return False
        write.move("row_given_up")
        return True

    def trip(self, write: Write) -> None:
        """Give up waiting for a write: its hard timeout has passed."""
        log.error("the write of %s has not ended after %g s", write.id, self.hard_timeout)
        self._sweep_markers()
        write.move("hard_timeout_passed")

    def _sweep_markers(self) -> None:
        now = self.clock()
        for write in list(islice(self.markers, SWEEP_VISITS)):
            if now >= write.marked_until:
                write.move("marker_expired")

    def _retry(self, write: Write) -> bool:
        if write.expires_at is not None and self.clock() >= write.expires_at:
            write.move("row_expired")
            return False
        self._try(write, "write_retried")
        return True

    def _try(self, write: Write, event: str) -> None:
        write.move(event)
        try:
            running = asyncio.ensure_future(write.attempt())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  as if it had been awaited
            self._fail(write, error)
            return
        self.running[running] = write
        running.add_done_callback(self._end)

    def _end(self, ended: asyncio.Future[None]) -> None:
        write = self.running.pop(ended)
        error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
        if error is None:
            write.move("row_committed")
        else:
            self._fail(write, error)

    def _fail(self, write: Write, error: BaseException) -> None:
        log.error("the write of %s failed: %r", write.id, error, exc_info=error)
        write.move("write_failed")
        if len(self.failed) > FAILED_KEPT:
            oldest = next(iter(self.failed))
            log.error("the row of %s is given up: %d others could not be written since", oldest.id, FAILED_KEPT)
            oldest.move("row_given_up")
