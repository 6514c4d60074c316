"""QUEUED and HELD: a place at the model, waited for in silence or, past the first heartbeat, with the stream open."""

import logging

from handlers.exchange import Exchange
from handlers.heartbeat import beating
from storage.errors import WriteError

log = logging.getLogger("interlock.exchange")


async def admit(exchange: Exchange) -> str:
    """Take a place in the model's queue, or say that the queue is full."""
    slots = exchange.binding.slots
    exchange.facts.update(waiting=slots.waiting, limit=slots.limit)
    exchange.measured.ahead, exchange.measured.running = slots.waiting, slots.running
    exchange.ticket = slots.take()
    if exchange.ticket is None:
        return "queue_full"
    if exchange.request.background:
        return await _accept(exchange)
    # a whole reply has no heartbeat, so it waits however long it takes
    patience = exchange.services.settings.heartbeat_seconds if exchange.wants_stream else None
    return _enter(exchange) if await exchange.ticket.granted(patience) else "heartbeat_due"


async def _accept(exchange: Exchange) -> str:
    if exchange.services.store is None:
        return "job_unstored"
    try:
        await exchange.go_on_alone(exchange.services.store)
    except (WriteError, TimeoutError) as error:
        log.warning("%s: the job was not stored: %s", exchange.id, error, exc_info=error.__cause__)
        return "job_unstored"
    return "job_accepted"


async def hold(exchange: Exchange) -> str:
    """Open the stream and keep it alive until the model is free."""
    if exchange.job is None:
        await exchange.beat()
    async with beating(exchange):
        if exchange.ticket is not None:
            await exchange.ticket.granted()
    return _enter(exchange)


def _enter(exchange: Exchange) -> str:
    is_current = exchange.services.models.is_current(exchange.request.model or "", exchange.binding)
    return "slot_granted" if is_current else "binding_changed"
