"""What a start makes of the background responses that were under way when their server ended."""

import logging
from typing import Any

import msgspec
from msgspec.structs import replace
from transitions import EventData

from handlers.lookup import look_up_row
from handlers.mapping.to_stored import to_resource
from handlers.services import Services
from handlers.wire.sse import to_terminal_data
from machines.driver import Driven, fire
from machines.job import JOB, MACHINE, State
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

    def __init__(self, row: JobRow) -> None:
        super().__init__(JOB, row.id)
        self.state = State(row.status)

    def close_journal(self, _: EventData) -> None:
        """Nobody reads it yet."""


async def recover(services: Services) -> None:
    """Give each job that was left under way its end: that of its row, if it has one, or a failure."""
    if services.store is None:
        return
    try:
        for job in await services.store.unfinished_jobs():
            await _end(services, services.store, job)
    except StoreError as error:
        log.warning("background responses of the last run could not be ended: %s", error, exc_info=error.__cause__)


async def _end(services: Services, store: Store, job: JobRow) -> None:
    row = await look_up_row(services, job.id)
    resource: dict[str, Any]
    if isinstance(row, Missing):
        resource = {**msgspec.json.decode(job.response_json), "status": "failed", "error": ERROR}
    else:
        resource = to_resource(row)
    left = LeftJob(job)
    if left.state is State.QUEUED and resource["status"] != "failed":
        fire(MACHINE, left, "model_taken")
    fire(MACHINE, left, ENDINGS[resource["status"]])
    told = await store.told(job.id, -1)
    name = f"response.{resource['status']}"
    number = told[-1].number + 1 if told else 0
    data = to_terminal_data(name, resource, number).decode()
    ended = replace(job, status=left.state.value, response_json=msgspec.json.encode(resource).decode())
    await store.end_job(ended, [EventRow(response_id=job.id, number=number, name=name, data=data)])
    log.info("%s was under way when the server ended; it is now %s", job.id, left.state.value)
