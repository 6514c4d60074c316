"""GET /traces/{id}: how an exchange went, by its id or its response's, also while it is under way. No content."""

from falcon.asgi import Request, Response

from handlers.exchange import Exchange
from handlers.mapping.to_trace import Trace, to_trace
from handlers.services import Services
from handlers.unrouted import refuse_routing


class Traces:
    """The traces that the store keeps, and those of the exchanges that run."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, known_as: str) -> None:
        found = await find_traces(self._services, known_as)
        if found:
            resp.media = {"object": "list", "data": found}
        else:
            await refuse_routing(self._services, req, resp, "trace_unknown", known_as=known_as[:256])


async def find_traces(services: Services, known_as: str) -> list[Trace]:
    """Find the traces of an exchange or a response, the oldest first. Raises ReadError."""
    ended = [] if services.store is None else await services.store.traces(known_as)
    running = [exchange for exchange in services.exchanges if isinstance(exchange, Exchange)]
    rows = [
        exchange.trace_row() for exchange in running if known_as in {exchange.id, exchange.facts.get("response_id")}
    ]
    return [*map(to_trace, ended), *(to_trace(row, has_ended=False) for row in rows)]
