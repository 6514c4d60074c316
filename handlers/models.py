"""A model in memory: the places it has for requests, and who keeps it there."""

import asyncio
import logging
from contextlib import suppress
from typing import Protocol

from transitions import EventData

from engine.errors import LoadError
from engine.pieces import Engine
from machines.binding import BINDING, MACHINE, State
from machines.driver import Driven, Move, fire

log = logging.getLogger("interlock.models")


class Ticket:
    """A place in a model's queue, and then in the model. Whoever takes one leaves it, whatever happens."""

    def __init__(self, slots: "Slots") -> None:
        self.is_running = False
        self._slots = slots
        self._called = asyncio.Event()

    async def granted(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  running out of time is an answer
        """Tell whether the ticket runs, waiting up to `timeout` seconds; the place in the queue stays."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._called.wait()
        return self.is_running

    def leave(self) -> None:
        """Give back the slot, or the place in the queue; a second time nothing happens."""
        self._slots.drop(self)
        self._called.set()

    def call(self) -> None:
        self.is_running = True
        self._called.set()


class Slots:
    """The places of one model: `capacity` requests decode, up to `limit` wait, first come first served."""

    def __init__(self, capacity: int = 1, limit: int = 16) -> None:
        self.capacity = capacity
        self.limit = limit
        self._running: set[Ticket] = set()
        self._queue: dict[Ticket, None] = {}

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait; those that run are not among them."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether one more request would be one waiter too many."""
        return self.running >= self.capacity and self.waiting >= self.limit

    def resize(self, capacity: int) -> None:
        """Let so many requests decode from now on; those that do so already go on."""
        self.capacity = capacity
        self._call_next()

    def take(self) -> Ticket | None:
        """Take a place, at the end of the queue if there is one, or None if the queue is full."""
        if self.is_full:
            return None
        ticket = Ticket(self)
        self._queue[ticket] = None
        self._call_next()
        return ticket

    def drop(self, ticket: Ticket) -> None:
        self._queue.pop(ticket, None)
        self._running.discard(ticket)
        ticket.is_running = False
        self._call_next()

    def _call_next(self) -> None:
        while self._queue and self.running < self.capacity:
            ticket = next(iter(self._queue))
            del self._queue[ticket]
            self._running.add(ticket)
            ticket.call()


class Keeper(Protocol):
    """What a binding tells of its end."""

    def let_go(self, engine: Engine) -> None:
        """Close an engine that nothing holds."""

    def forget(self, binding: "Binding") -> None:
        """Give up the instance id."""

    def moved(self, binding: "Binding", move: Move) -> None:
        """Hear of a move."""


class Binding(Driven):
    """One model object, following the binding machine. `instance` tells model objects of one process apart."""

    state: State

    def __init__(self, engine: Engine, instance: int, slots: Slots, started_at: float, keeper: Keeper) -> None:
        super().__init__(BINDING)
        self.engine = engine
        self.instance = instance
        self.slots = slots
        self.started_at = started_at
        self.reason: str | None = None
        self.names = 0
        self.leases = 0
        self.retains = 0
        self.tombstones = 0
        self._is_closed = False
        self._keeper = keeper

    async def load(self) -> None:
        """Load the model; a failure is logged and leaves the binding broken. One that lost its names stays so."""
        event, reason = "model_loaded", None
        self._is_closed = False
        try:
            await self.engine.load()
        except LoadError as error:
            event, reason = "load_failed", str(error)
            log.error("model instance %d could not be loaded: %s", self.instance, reason)  # noqa: TRY400 - one sentence
        except Exception as error:
            event, reason = "load_failed", f"It could not be loaded: {type(error).__name__}; the log says more."
            log.exception("model instance %d could not be loaded", self.instance)
        if self.state is State.LOADING:
            self.reason = reason
            self.slots.resize(self.engine.capacity)
            fire(MACHINE, self, event)
            log.info("model instance %d is %s", self.instance, self.state.value)

    def look(self) -> State:
        """Give the state, having looked whether the engine still lives."""
        if self.state is State.READY and not self.engine.healthy:
            self.reason = "Its engine died or stood still; it is loaded again."
            fire(MACHINE, self, "engine_died")
        return self.state

    def watch(self, now: float) -> bool:
        """Look after an engine that died: whoever still waits for it is told, and its model is to be loaded again."""
        if self.look() is State.DRAINING and not self.engine.healthy:
            self._close()
        if self.state is not State.BROKEN or self.event != "engine_died":
            return False
        self.started_at, self.reason = now, None
        fire(MACHINE, self, "reload_started")
        log.warning("model instance %d is loaded again, for its engine died or stood still", self.instance)
        return True

    def add_name(self, now: float) -> None:
        """Let one more name hold this; what was retired has to be loaded again."""
        self.names += 1
        if self.state is State.RETIRED:
            self.started_at = now
        if ("named_again", self.state) in BINDING.edges:
            fire(MACHINE, self, "named_again")

    def drop_name(self) -> None:
        self.names -= 1
        if self.names == 0:
            fire(MACHINE, self, "last_name_lost")
        self.settle()

    def lease(self) -> "Lease":
        return Lease(self)

    def retain(self) -> "Retain":
        """Hold the model, and so its instance id, for a write that is under way."""
        return Retain(self)

    def settle(self) -> None:
        """Make the move that a hold which was let go of allows."""
        if self.leases or self.retains:
            return
        if self.state is State.DRAINING:
            fire(MACHINE, self, "wedged_write_left" if self.tombstones else "last_holder_left")
        elif self.state is State.RETIRED and not self.tombstones:
            fire(MACHINE, self, "last_write_settled")

    def close(self) -> None:
        """Let go of the model though something may still hold it: the server ends."""
        fire(MACHINE, self, "server_closed")

    def moved(self, move: Move) -> None:
        self._keeper.moved(self, move)

    def close_engine(self, _: EventData) -> None:
        self._close()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._keeper.let_go(self.engine)

    def forget(self, _: EventData) -> None:
        self._keeper.forget(self)


class Lease:
    """A request's use of a model, given back to the object it was taken from."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._is_held = True
        binding.leases += 1

    def release(self) -> None:
        """Let go of the model; a second time nothing happens."""
        if self._is_held:
            self._is_held = False
            self.binding.leases -= 1
            self.binding.settle()


class Retain:
    """A write's hold on a model: first on the object; on its instance id alone, once it is given up as wedged."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._is_held = True
        self._is_wedged = False
        binding.retains += 1

    def release(self, wedged: bool = False) -> None:  # noqa: FBT001, FBT002  always passed by name
        """Let go of the model. A wedged write leaves a tombstone, which the release without `wedged` takes away."""
        binding = self.binding
        if wedged and self._is_held:
            self._is_wedged = True
            binding.tombstones += 1
        if not wedged and self._is_wedged:
            self._is_wedged = False
            binding.tombstones -= 1
        if self._is_held:
            self._is_held = False
            binding.retains -= 1
        binding.settle()
