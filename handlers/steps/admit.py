"""QUEUED: a place at the model."""

from handlers.exchange import Exchange


async def admit(exchange: Exchange) -> str:
    """Take a place in the model's queue, or say that the queue is full."""
    slots = exchange.binding.slots
    exchange.facts.update(waiting=slots.waiting, limit=slots.limit)
    if slots.is_full:
        return "queue_full"
    await slots.enter()
    return "slot_granted"
