"""The events of a background response: numbered, committed, and then told to its readers, who come and go.

A reader is told only what the store has, so one that comes back after a crash never knows more than the server does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from handlers.wire.events import Event
from handlers.wire.sse import to_data, to_name
from storage.errors import WriteError
from storage.rows import EventRow

log = logging.getLogger("interlock.journal")

Commit = Callable[[list[EventRow]], Awaitable[None]]


class Journal:
    """Stands where other exchanges have an outbox. `commit` keeps events; the last one is kept with the job's end."""

    def __init__(self, response_id: str, commit: Commit) -> None:
        self.rows: list[EventRow] = []
        self.stored = 0  # so many of them are committed
        self.told = 0  # so many may be read
        self.readers = 0
        self.is_delivered = False  # the last event is among them
        self._id = response_id
        self._commit = commit
        self._committing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._news = asyncio.Event()

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self.rows)

    @property
    def unstored(self) -> list[EventRow]:
        """The events that are not committed."""
        return self.rows[self.stored :]

    async def put(self, event: Event) -> None:
        """Give an event its number and have it committed soon; what could not be committed is tried with the next."""
        self._add(event)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name=f"journal of {self._id}")

    def end(self, event: Event) -> None:
        """Give the last event its number; who commits the end of the job commits what is left."""
        self._add(event)
        self.is_delivered = True

    async def settled(self) -> None:
        """Wait until no commit is under way."""
        if self._committing is not None:
            await asyncio.wait([self._committing])

    async def read(self, after: int = -1, has_left: Callable[[], bool] = lambda: False) -> AsyncGenerator[EventRow]:
        """Give the events beyond a number, as they come, and the last one in any case, unless the reader leaves."""
        place = after + 1
        self.readers += 1
        try:
            while not has_left() and (place < self.told or not self._is_closed):
                if place < self.told:
                    yield self.rows[place]
                    place += 1
                else:
                    await self._news.wait()
        finally:
            self.readers -= 1
        if after >= self.count - 1 and not has_left():
            yield self.rows[-1]

    def close(self) -> None:
        """Tell all there is, committed or not: readers are better told than left waiting. Nothing more will follow."""
        self._is_closed = True
        self.told = self.count
        self.wake()

    def wake(self) -> None:
        """Have the readers look again whether there is something for them."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def closed(self) -> None:
        """Wait until nothing more will be told."""
        while not self._is_closed:
            await self._news.wait()

    def _add(self, event: Event) -> None:
        data = to_data(event, self.count).decode()
        self.rows.append(EventRow(response_id=self._id, number=self.count, name=to_name(event), data=data))

    async def _commit_all(self) -> None:
        try:
            while self.unstored and not self.is_delivered:
                rows = self.unstored
                await self._commit(rows)
                self.stored += len(rows)
                self.told = max(self.told, self.stored)
                self.wake()
        except WriteError as error:
            log.warning("events of %s could not be stored yet: %s", self._id, error, exc_info=error.__cause__)
        except Exception:
            log.exception("events of %s could not be stored yet", self._id)
        finally:
            self._committing = None
