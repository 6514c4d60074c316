"""The frames of one exchange, on their way to the one reader that is its HTTP response."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from handlers.wire.events import Event
from storage.rows import EventRow

LIMIT = 32  # events a slow reader may be behind before the engine pauses
PATIENCE = 30.0  # seconds a reader may stand still before it is given up


class ReaderStalledError(Exception):
    """The reader has taken nothing for too long."""


class Outbox:
    """A bounded queue of numbered events. A full one makes the exchange, and so the engine, wait for its reader."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._events: asyncio.Queue[tuple[int, Event | EventRow] | None] = asyncio.Queue()
        self._limit = limit
        self._room = asyncio.Semaphore(limit)
        self._spoken = asyncio.Event()
        self._seen = asyncio.Event()
        self.count = 0

    async def put(self, event: Event) -> None:
        """Give an event its number and queue it, waiting while the reader is too far behind.

        Raises ReaderStalledError.
        """
        await self._with_patience(self._room.acquire())
        self._events.put_nowait((self.count, event))
        self.count += 1
        self._spoken.set()

    async def tell(self, row: EventRow) -> None:
        """Queue an event that has its number, as `put` does."""
        await self._with_patience(self._room.acquire())
        self._events.put_nowait((row.number, row))
        self.count += 1
        self._spoken.set()

    async def deliver(self, event: Event) -> None:
        """Queue the terminal event and wait until its reader says that it left. Raises ReaderStalledError."""
        await self.put(event)
        for _ in range(self._limit):  # each event that is taken starts the patience anew, and none follows this one
            await self._with_patience(self._room.acquire())
        await self._with_patience(self._seen.wait())

    async def _with_patience(self, waiting: Coroutine[Any, Any, Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await waiting
        except TimeoutError:
            msg = f"the client took nothing for {PATIENCE:g} s"
            raise ReaderStalledError(msg) from None

    def acknowledge(self) -> None:
        """Say that the terminal event was handed to the connection and the client had not left."""
        self._seen.set()

    @property
    def is_delivered(self) -> bool:
        """Whether the terminal event was acknowledged."""
        return self._seen.is_set()

    def close(self) -> None:
        """Nothing more will be said."""
        self._events.put_nowait(None)
        self._spoken.set()

    async def first(self) -> None:
        """Wait until something was said, or nothing ever will be."""
        await self._spoken.wait()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event | EventRow]]:
        while (numbered := await self._events.get()) is not None:
            self._room.release()
            yield numbered
