"""QUEUED and HELD: a place at the model, waited for in silence or, past the first heartbeat, with the stream open."""

from handlers.exchange import Exchange
from handlers.heartbeat import beating


async def admit(exchange: Exchange) -> str:
    """Take a place in the model's queue, or say that the queue is full."""
    slots = exchange.binding.slots
    exchange.facts.update(waiting=slots.waiting, limit=slots.limit)
    exchange.ticket = slots.take()
    if exchange.ticket is None:
        return "queue_full"
    # a whole reply has no heartbeat, so it waits however long it takes
    patience = exchange.services.settings.heartbeat_seconds if exchange.wants_stream else None
    return _enter(exchange) if await exchange.ticket.granted(patience) else "heartbeat_due"


async def hold(exchange: Exchange) -> str:
    """Open the stream and keep it alive until the model is free."""
    await exchange.beat()
    async with beating(exchange):
        if exchange.ticket is not None:
            await exchange.ticket.granted()
    return _enter(exchange)


def _enter(exchange: Exchange) -> str:
    is_current = exchange.services.models.is_current(exchange.request.model or "", exchange.binding)
    return "slot_granted" if is_current else "binding_changed"
