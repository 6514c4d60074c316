"""The frames of one exchange, on their way to the one reader that is its HTTP response."""

import asyncio
from typing import Self

from handlers.wire.events import Event
from storage.rows import EventRow

Numbered = tuple[int, Event | EventRow]

LIMIT = 32  # events a slow reader may be behind before the engine pauses
PATIENCE = 30.0  # seconds a reader may stand still before it is given up


class ReaderStalledError(Exception):
    """The reader has taken nothing for too long."""


class Outbox:
    """A bounded queue of numbered events. A full one makes the exchange, and so the engine, wait for its reader."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._events: list[Numbered] = []
        self._limit = limit
        self._spoken = asyncio.Event()
        self._news = asyncio.Event()
        self._moved = asyncio.Event()
        self._ends = False  # whether the last of them is the terminal event
        self._is_closed = False  # whether no more will come
        self.is_delivered = False  # whether the terminal event was acknowledged
        self.count = 0

    async def put(self, event: Event) -> None:
        """Give an event its number and queue it, waiting while the reader is too far behind.

        Raises ReaderStalledError.
        """
        await self._queue_when_room((self.count, event))

    async def tell(self, row: EventRow) -> None:
        """Queue an event that has its number, as `put` does."""
        await self._queue_when_room((row.number, row))

    async def deliver(self, event: Event) -> None:
        """Queue the terminal event and wait until its reader says that it left. Raises ReaderStalledError."""
        await self._queue_when_room((self.count, event), ends=True)
        while not self.is_delivered:
            await self._progress()

    async def _queue_when_room(self, numbered: Numbered, *, ends: bool = False) -> None:
        while len(self._events) >= self._limit:
            await self._progress()
        self._events.append(numbered)
        self._ends = ends
        self._wake()
        self.count += 1

    async def _progress(self) -> None:
        """Wait until the reader takes an event, which starts the patience anew, or acknowledges the last."""
        self._moved.clear()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._moved.wait()
        except TimeoutError:
            msg = f"the client took nothing for {PATIENCE:g} s"
            raise ReaderStalledError(msg) from None

    def _wake(self) -> None:
        self._spoken.set()
        self._news.set()

    def acknowledge(self) -> None:
        """Say that the terminal event was handed to the connection and the client had not left."""
        self.is_delivered = True
        self._moved.set()

    def close(self, *, is_abandoned: bool = False) -> None:
        """Nothing more will be said; to a reader that was given up, not even what it has not taken yet."""
        if is_abandoned:  # what is not taken may hold the end of a response that is not kept
            self._events.clear()
        self._is_closed = True
        self._wake()

    async def first(self) -> None:
        """Wait until something was said, or nothing ever will be."""
        await self._spoken.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Numbered]:
        """Give all that was said since, so that what is said at once is sent at once; but the terminal event alone.

        Who takes that has been sent all before it.
        """
        while not self._events and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        self._moved.set()
        if not self._events:
            raise StopAsyncIteration
        count = len(self._events) - 1 if self._ends and len(self._events) > 1 else len(self._events)
        taken, self._events = self._events[:count], self._events[count:]
        return taken
