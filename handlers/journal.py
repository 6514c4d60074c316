"""The events of a background response: numbered, committed, and then told to its readers, who come and go.

A reader is told only what the store has, so one that comes back after a crash never knows more than the server does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from handlers.wire.events import Event
from handlers.wire.sse import to_data, to_name
from storage.errors import WriteError
from storage.rows import EventRow

log = logging.getLogger("interlock.journal")

LIMIT = 1000  # events that may wait for the store before the engine has to

Commit = Callable[[list[EventRow]], Awaitable[None]]


class Journal:
    """Stands where other exchanges have an outbox. `commit` keeps events, `end` the last one and the job's end."""

    def __init__(self, response_id: str, commit: Commit, end: Commit) -> None:
        self.count = 0
        self.told: list[EventRow] = []
        self.is_delivered = False
        self._id = response_id
        self._commit, self._end = commit, end
        self._waiting: list[EventRow] = []
        self._committing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._news = asyncio.Event()

    async def put(self, event: Event) -> None:
        """Give an event its number and have it committed, waiting while too many others wait for that."""
        self._add(event)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name=f"journal of {self._id}")
        if len(self._waiting) >= LIMIT:
            await asyncio.shield(self._committing)

    async def deliver(self, event: Event) -> None:
        """Commit the terminal event, after all others, together with the end of the job."""
        if self._committing is not None:
            await asyncio.shield(self._committing)
        self._add(event)
        await self._keep(self._end)
        self.is_delivered = True

    async def read(self, after: int = -1) -> AsyncIterator[EventRow]:
        """Give the events beyond a number, as they come, and always the last one."""
        place = after + 1
        while True:
            while place < len(self.told):
                yield self.told[place]
                place += 1
            if self._is_closed:
                break
            await self._news.wait()
        if after >= len(self.told) - 1 >= 0:
            yield self.told[-1]

    def close(self) -> None:
        """Nothing more will be told."""
        self._is_closed = True
        self._wake()

    async def closed(self) -> None:
        """Wait until nothing more will be told."""
        while not self._is_closed:
            await self._news.wait()

    async def first(self) -> None:
        """Return at once: a job was heard of when it was accepted."""

    def _add(self, event: Event) -> None:
        row = EventRow(
            response_id=self._id, number=self.count, name=to_name(event), data=to_data(event, self.count).decode()
        )
        self.count += 1
        self._waiting.append(row)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._keep(self._commit)
        finally:
            self._committing = None

    async def _keep(self, commit: Commit) -> None:
        rows, self._waiting = self._waiting, []
        try:
            await commit(rows)
        except WriteError as error:
            # whoever reads now is better told than left waiting; a later reader will miss these
            log.warning("events of %s could not be stored: %s", self._id, error, exc_info=error.__cause__)
        self.told += rows
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
