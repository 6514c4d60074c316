"""PERSISTING: the row of a response whose terminal event has left."""

from handlers.exchange import Exchange
from handlers.mapping.to_row import Origin, to_row


async def persist(exchange: Exchange) -> str:
    """Write the row, unless the client or the server keeps none."""
    services = exchange.services
    if not exchange.head.store or services.store is None:
        return "row_unwanted"
    asked = exchange.request.metadata
    retention = asked.get("retention_seconds") if isinstance(asked, dict) else None
    seconds = retention or services.settings.retention_seconds
    row = to_row(
        exchange.response,
        exchange.items,
        exchange.chain,
        Origin(exchange.binding.instance, services.boot_id),
        expires_at=int(services.clock()) + seconds,
    )
    await services.store.put(row)
    return "row_written"
