"""ROUTING: what the HTTP layer found."""

from handlers.exchange import Exchange


async def route(exchange: Exchange) -> str:
    """Say how the request's path, method and headers were matched."""
    return exchange.incoming.event
