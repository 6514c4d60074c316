"""The frames of one exchange, on their way to the one reader that is its HTTP response."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from handlers.wire.events import Event
from storage.rows import EventRow

LIMIT = 32  # events a slow reader may be behind before the engine pauses
PATIENCE = 30.0  # seconds a reader may stand still before it is given up


class ReaderStalledError(Exception):
    """The reader has taken nothing for too long."""


class Outbox:
    """A bounded queue of numbered events. A full one makes the exchange, and so the engine, wait for its reader."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._events: deque[tuple[int, Event | EventRow] | None] = deque()
        self._limit = limit
        self._spoken = asyncio.Event()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._seen = asyncio.Event()
        self.count = 0

    async def put(self, event: Event) -> None:
        """Give an event its number and queue it, waiting while the reader is too far behind.

        Raises ReaderStalledError.
        """
        await self._fall_below(self._limit)
        self._queue((self.count, event))
        self.count += 1

    async def tell(self, row: EventRow) -> None:
        """Queue an event that has its number, as `put` does."""
        await self._fall_below(self._limit)
        self._queue((row.number, row))
        self.count += 1

    async def deliver(self, event: Event) -> None:
        """Queue the terminal event and wait until its reader says that it left. Raises ReaderStalledError."""
        await self.put(event)
        await self._fall_below(1)
        await _set_in_time(self._seen)

    async def _fall_below(self, limit: int) -> None:
        while len(self._events) >= limit:  # each event that is taken starts the patience anew
            self._taken.clear()
            await _set_in_time(self._taken)

    def _queue(self, numbered: tuple[int, Event | EventRow] | None) -> None:
        self._events.append(numbered)
        self._spoken.set()
        self._news.set()

    def acknowledge(self) -> None:
        """Say that the terminal event was handed to the connection and the client had not left."""
        self._seen.set()

    @property
    def is_delivered(self) -> bool:
        """Whether the terminal event was acknowledged."""
        return self._seen.is_set()

    def close(self) -> None:
        """Nothing more will be said."""
        self._queue(None)

    async def first(self) -> None:
        """Wait until something was said, or nothing ever will be."""
        await self._spoken.wait()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event | EventRow]]:
        while (numbered := await self._next()) is not None:
            yield numbered

    async def _next(self) -> tuple[int, Event | EventRow] | None:
        while not self._events:
            self._news.clear()
            await self._news.wait()
        self._taken.set()
        return self._events.popleft()


async def _set_in_time(event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await event.wait()
    except TimeoutError:
        msg = f"the client took nothing for {PATIENCE:g} s"
        raise ReaderStalledError(msg) from None
