"""Background responses: what a job holds while it is under way, and until its end is stored."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from transitions import EventData

from handlers.journal import Journal
from handlers.mapping.to_response import Ending, Head, to_response
from handlers.wire.events import Created, Failed, InProgress, Queued, Terminal
from handlers.wire.items import OutputItem
from handlers.wire.response import Response, ResponseError
from machines.driver import Driven, Move, fire
from machines.job import FINAL, JOB, MACHINE, State
from storage.errors import WriteError
from storage.rows import JobRow
from storage.store import Store

ENDINGS: dict[str, str] = {
    "completed": "response_completed",
    "incomplete": "response_incomplete",
    "failed": "response_failed",
    "cancelled": "client_cancelled",
}

log = logging.getLogger("interlock.jobs")


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is kept: where, until when if it ended now, and how many seconds its readers wait for the store."""

    store: Store
    expiry: Callable[[], int]
    patience: float
    forget: Callable[[], None]
    heard: Callable[[Driven, Move], None] = lambda _, __: None


class Job(Driven):
    """Follows the job machine for one background response; its exchange moves it, its readers read the journal."""

    state: State

    def __init__(self, head: Head, items: list[dict[str, Any]], keeping: Keeping) -> None:
        super().__init__(JOB, head.id)
        self.head = head
        self.journal = Journal(head.id, keeping.store.tell)
        self.ended: Response | None = None
        self._items_json = msgspec.json.encode(items).decode()
        self._keeping = keeping
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_final(self) -> bool:
        """Whether it has come to one of its ends, of which every reader is told."""
        return self.state in FINAL

    async def begin(self) -> None:
        """Commit that the job is there, before anybody is told of it. Raises WriteError and TimeoutError.

        A job that is not to be after all, but may get into the store, is taken out again.
        """
        opening = self.resource([])
        beginning = asyncio.create_task(self._begin(self._to_row(opening)), name=f"begin {self.id}")
        try:
            async with asyncio.timeout(self._keeping.patience):
                await asyncio.shield(beginning)
        except (asyncio.CancelledError, TimeoutError):
            self._ending = asyncio.create_task(self._take_back(beginning), name=f"take back {self.id}")
            raise
        except BaseException:
            self._keeping.forget()
            raise
        await self.journal.put(Created(opening))
        await self.journal.put(Queued(opening))

    async def beat(self) -> None:
        """Say again that the response waits, or is being made, if anybody listens."""
        if self.journal.readers:
            await self._say_how_far()

    async def take(self) -> None:
        """Take note that the model has begun, and say so."""
        fire(MACHINE, self, "model_taken")
        await self._say_how_far()

    async def end(self, terminal: Terminal) -> None:
        """Commit the terminal event and how the job ended, and tell every reader; an end that was given stands."""
        if self.ended is None:
            self.journal.end(terminal)
            self.ended = terminal.response
        await self.keep()
        fire(MACHINE, self, ENDINGS[self.ended.status])

    async def keep(self) -> None:
        """Commit how the job ended, now or again, and wait for that, though no longer than its readers may."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._keep(), name=f"end {self.id}")
        await asyncio.wait([self._ending], timeout=self._keeping.patience)

    async def close(self) -> None:
        """End a job whose exchange could not, so that no reader waits for ever."""
        if not self.is_final:
            error = ResponseError("server_error", "The server failed on this response; its log says more.")
            await self.end(Failed(to_response(self.head, Ending(status="failed", error=error))))

    def resource(self, output: list[OutputItem]) -> Response:
        """Give the response as it stands, with the output items that are whole."""
        if self.is_final and self.ended is not None:
            return self.ended
        return to_response(self.head, Ending(status=self.state.value, output=list(output)))

    def moved(self, move: Move) -> None:
        self._keeping.heard(self, move)

    def close_journal(self, _: EventData) -> None:
        self.journal.close()

    async def _begin(self, row: JobRow) -> None:
        await self._keeping.store.begin_job(row)

    async def _say_how_far(self) -> None:
        say = Queued if self.state is State.QUEUED else InProgress
        await self.journal.put(say(self.resource([])))

    async def _keep(self) -> None:
        await self.journal.settled()
        try:
            if self.ended is not None:
                await self._keeping.store.end_job(self._to_row(self.ended), self.journal.unstored)
        except WriteError as error:
            log.error("the end of %s could not be stored yet: %s", self.id, error, exc_info=error.__cause__)  # noqa: TRY400
        except Exception:
            log.exception("the end of %s could not be stored yet", self.id)
        else:
            self._keeping.forget()

    async def _take_back(self, beginning: "asyncio.Task[None]") -> None:
        try:
            await beginning
            await self._keeping.store.delete(self.id)
        except WriteError as error:
            log.warning("%s, which was not accepted, was not taken back: %s", self.id, error)
        finally:
            self._keeping.forget()

    def _to_row(self, response: Response) -> JobRow:
        return JobRow(
            id=self.id,
            created_at=self.head.created_at,
            expires_at=self._keeping.expiry(),
            status=response.status,
            response_json=msgspec.json.encode(response).decode(),
            items_json=self._items_json,
        )
