"""The models in memory, by name, and the places each has for requests."""

import asyncio
import itertools
import logging
from typing import Literal

from engine.errors import LoadError
from engine.pieces import Engine

log = logging.getLogger("interlock.models")

Readiness = Literal["loading", "ready", "broken"]


class Slots:
    """The places of one model: `capacity` requests decode, up to `limit` wait, first come first served."""

    def __init__(self, capacity: int = 1, limit: int = 16) -> None:
        self.limit = limit
        self.waiting = 0
        self._free = asyncio.Semaphore(capacity)

    @property
    def is_busy(self) -> bool:
        """Whether a request that comes now has to wait."""
        return self._free.locked()

    @property
    def is_full(self) -> bool:
        """Whether one more request would be one waiter too many."""
        return self.is_busy and self.waiting >= self.limit

    async def enter(self) -> None:
        """Wait for a place and take it; a cancelled waiter is forgotten at once."""
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1

    def leave(self) -> None:
        """Give a place back."""
        self._free.release()


class Binding:
    """A name's model. `instance` tells model objects of one process apart."""

    _instances = itertools.count(1)

    def __init__(self, name: str, engine: Engine, created_at: int, slots: Slots) -> None:
        self.name = name
        self.engine = engine
        self.created_at = created_at
        self.slots = slots
        self.instance = next(self._instances)
        self._is_loading = True
        self._fault: str | None = None

    @property
    def readiness(self) -> Readiness:
        """Whether requests can be served now."""
        if self._is_loading:
            return "loading"
        return "ready" if self._fault is None and self.engine.healthy else "broken"

    async def load(self) -> None:
        """Load the model; a failure is logged and leaves the binding broken."""
        try:
            await self.engine.load()
            log.info("model %s is ready", self.name)
        except LoadError as error:
            self._fault = str(error)
            log.error("model %s could not be loaded: %s", self.name, error)  # noqa: TRY400 - one clear sentence
        finally:
            self._is_loading = False
