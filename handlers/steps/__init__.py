"""One step a working state: each does the state's work and returns the event that happened."""

import asyncio
import logging

from engine.errors import DecodeError
from handlers.exchange import Exchange
from handlers.outbox import ReaderStalledError
from handlers.report import report
from handlers.steps.admit import admit, hold
from handlers.steps.bind import bind
from handlers.steps.dispatch import dispatch
from handlers.steps.emit import emit_failure, emit_terminal
from handlers.steps.persist import persist
from handlers.steps.prepare import prepare
from handlers.steps.resolve import await_write, resolve
from handlers.steps.retrieve import retrieve, tell
from handlers.steps.route import route
from handlers.steps.validate import validate
from machines.driver import drive
from machines.exchange import State
from storage.errors import ReadError

STEPS = {
    State.ROUTING: route,
    State.VALIDATING: validate,
    State.BINDING: bind,
    State.RESOLVING: resolve,
    State.AWAITING_WRITE: await_write,
    State.PREPARING: prepare,
    State.QUEUED: admit,
    State.HELD: hold,
    State.DISPATCHING: dispatch,
    State.EMITTING: emit_terminal,
    State.FAILING: emit_failure,
    State.PERSISTING: persist,
    State.RETRIEVING: retrieve,
    State.TELLING: tell,
}
EVENT_FOR: dict[type[Exception], str] = {
    ReaderStalledError: "client_stalled",
    DecodeError: "decode_failed",
    ReadError: "chain_unreadable",
}

JOBS_KEPT = 64  # jobs held in memory for their ends could not be stored

log = logging.getLogger("interlock.exchange")


async def run(exchange: Exchange) -> None:
    """Take an exchange from its route to a final state, then close its outbox and log its path."""
    try:
        await drive(exchange, STEPS, EVENT_FOR)
    finally:
        await end_job(exchange)
        exchange.outbox.close(is_abandoned=exchange.state is State.ABANDONED)
        report(exchange)


async def end_job(exchange: Exchange) -> None:
    """See that a job has ended. One whose end is not stored yet stays known, unless too many do."""
    if exchange.job is None:
        return
    await exchange.job.close()
    jobs = exchange.services.jobs
    unstored = [response_id for response_id, made in jobs.items() if made.job and made.job.is_final]
    for response_id in unstored[:-JOBS_KEPT]:
        log.error("the end of %s is given up: %d others could not be stored since", response_id, JOBS_KEPT)
        del jobs[response_id]


def start(exchange: Exchange) -> None:
    """Run an exchange as its own task, so that its reader may come and go."""
    running = exchange.services.running
    exchange.services.exchanges.add(exchange)
    task = asyncio.create_task(run(exchange), name=exchange.id)
    running.add(task)
    task.add_done_callback(running.discard)
