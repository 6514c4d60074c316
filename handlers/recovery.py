"""What becomes of the background responses that were under way when their server ended."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from transitions import EventData

from handlers.lookup import look_up_row
from handlers.mapping.to_stored import to_resource
from handlers.services import Services
from handlers.wire.sse import to_terminal_data
from machines.driver import Driven, Move, fire
from machines.job import FINAL, JOB, MACHINE, State
from storage.errors import StoreError
from storage.rows import EventRow, JobRow, Missing
from storage.store import Store

log = logging.getLogger("interlock.jobs")

ERROR = {
    "code": "server_error",
    "message": "The server ended while it made this response; ask again.",
    "type": "server_error",
    "param": None,
}
ENDINGS = {"completed": "response_completed", "incomplete": "response_incomplete", "failed": "server_restarted"}


class LeftJob(Driven):
    """A job that has no exchange any more."""

    def __init__(self, row: JobRow, heard: Callable[[Driven, Move], None]) -> None:
        super().__init__(JOB, row.id)
        self.state = State(row.status)
        self._heard = heard

    def moved(self, move: Move) -> None:
        self._heard(self, move)

    def close_journal(self, _: EventData) -> None:
        """Nobody reads it yet."""


async def recover(services: Services, store: Store) -> None:
    """Give each job that a crash left under way its end; what cannot be read or written is left for the next time."""
    try:
        left = await store.unfinished_jobs()
    except StoreError as error:
        log.warning("background responses could not be looked through: %s", error, exc_info=error.__cause__)
        return
    for job in left:
        try:
            if job.id not in services.jobs:
                await end_left(services, store, job)
        except Exception:
            log.exception("%s was left under way and could not be ended", job.id)


async def end_left(services: Services, store: Store, job: JobRow) -> JobRow:
    """End a job that no exchange makes: as its row says, if it has one, or as a failure. Raises StoreError."""
    left = LeftJob(job, services.job_heard)
    if left.state in FINAL:
        return job
    row = await look_up_row(services, job.id)
    resource = _failed(job) if isinstance(row, Missing) else to_resource(row)
    if left.state is State.QUEUED and resource["status"] != "failed":
        fire(MACHINE, left, "model_taken")
    fire(MACHINE, left, ENDINGS[resource["status"]])
    told = await store.told(job.id, -1)
    name = f"response.{resource['status']}"
    number = told[-1].number + 1 if told else 0
    data = to_terminal_data(name, resource, number).decode()
    ended = replace(
        job,
        status=left.state.value,
        response_json=msgspec.json.encode(resource).decode(),
        expires_at=int(services.clock()) + job.expires_at - job.created_at,
    )
    await store.end_job(ended, [EventRow(response_id=job.id, number=number, name=name, data=data)])
    log.warning("%s was left under way; it is now %s", job.id, left.state.value)
    return ended


def _failed(job: JobRow) -> dict[str, Any]:
    return {**msgspec.json.decode(job.response_json), "status": "failed", "error": ERROR}
