"""PERSISTING: the row of a response that has ended."""

from functools import partial

from handlers.exchange import Exchange
from handlers.heartbeat import beating


async def persist(exchange: Exchange) -> str:
    """Write the row, unless the client or the server keeps none."""
    services = exchange.services
    if not exchange.head.store or services.store is None:
        return "row_unwanted"
    row = exchange.to_row()
    retain = exchange.binding.retain()
    write = services.writes.start(row.id, partial(services.store.put, row), retain, retain.release)
    async with beating(exchange):
        return await write.landed(services.settings.persist_wait_ms / 1000)
