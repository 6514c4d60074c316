"""Background responses: what a job holds while it is under way, and what becomes of those a crash left behind."""

import logging
from typing import Any

import msgspec
from transitions import EventData

from handlers.journal import Journal
from handlers.mapping.to_response import Ending, Head, to_response
from handlers.wire.events import Created, Failed, InProgress, Queued, Terminal
from handlers.wire.items import OutputItem
from handlers.wire.response import Response, ResponseError
from machines.driver import Driven, fire
from machines.job import FINAL, JOB, MACHINE, State
from storage.rows import EventRow, JobRow
from storage.store import Store

ENDINGS: dict[str, str] = {
    "completed": "response_completed",
    "incomplete": "response_incomplete",
    "failed": "response_failed",
    "cancelled": "client_cancelled",
}

log = logging.getLogger("interlock.jobs")


class Job(Driven):
    """Follows the job machine for one background response; its exchange moves it, its readers read the journal."""

    state: State

    def __init__(self, head: Head, items: list[dict[str, Any]], expires_at: int, store: Store) -> None:
        super().__init__(JOB, head.id)
        self.head = head
        self.journal = Journal(head.id, store.tell, self._end)
        self.ended: Response | None = None
        self._items_json = msgspec.json.encode(items).decode()
        self._expires_at = expires_at
        self._store = store

    async def begin(self) -> None:
        """Commit that the job is there, before anybody is told of it. Raises WriteError."""
        opening = self.resource([])
        await self._store.begin_job(self._to_row(opening))
        await self.journal.put(Created(opening))
        await self.journal.put(Queued(opening))

    async def beat(self) -> None:
        """Say again that the response waits, or is being made."""
        say = Queued if self.state is State.QUEUED else InProgress
        await self.journal.put(say(self.resource([])))

    def take(self) -> None:
        """Take note that the model has begun."""
        fire(MACHINE, self, "model_taken")

    async def end(self, terminal: Terminal) -> None:
        """Commit the terminal event and tell it to every reader."""
        self.ended = terminal.response
        await self.journal.deliver(terminal)
        fire(MACHINE, self, ENDINGS[terminal.response.status])

    async def close(self) -> None:
        """End a job whose exchange could not, so that no reader waits for ever."""
        if self.state not in FINAL:
            error = ResponseError("server_error", "The server failed on this response; its log says more.")
            await self.end(Failed(to_response(self.head, Ending(status="failed", error=error))))

    def resource(self, output: list[OutputItem]) -> Response:
        """Give the response as it stands, with the output items that are whole."""
        return self.ended or to_response(self.head, Ending(status=self.state.value, output=list(output)))

    def close_journal(self, _: EventData) -> None:
        self.journal.close()

    async def _end(self, rows: list[EventRow]) -> None:
        if self.ended is not None:
            await self._store.end_job(self._to_row(self.ended), rows)

    def _to_row(self, response: Response) -> JobRow:
        return JobRow(
            id=self.id,
            created_at=self.head.created_at,
            expires_at=self._expires_at,
            status=response.status,
            response_json=msgspec.json.encode(response).decode(),
            items_json=self._items_json,
        )
