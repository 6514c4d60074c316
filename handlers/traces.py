"""/interlock/exchanges: how exchanges went, one or pages of them, also while they are under way. No content."""

import time

from falcon.asgi import Request, Response
from msgspec.structs import replace

from handlers.exchange import Exchange
from handlers.mapping.to_struct import FieldError, shown
from handlers.mapping.to_trace import Page, Trace, to_page, to_trace
from handlers.mapping.to_trace_query import to_trace_query
from handlers.report import to_trace_row
from handlers.services import Services
from handlers.unrouted import REPEATED, refuse_query, refuse_routing
from storage.rows import ExchangeRow, Missing, TraceQuery

AFTER = "after"


class Exchanges:
    """GET /interlock/exchanges."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response) -> None:
        try:
            resp.media = await list_traces(self._services, to_trace_query(req.params))
        except FieldError as wrong:
            await refuse_query(self._services, req, resp, wrong)


class OneExchange:
    """GET /interlock/exchanges/{id}."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, exchange_id: str) -> None:
        if trace := await find_or_refuse(self._services, req, resp, exchange_id):
            resp.media = trace


async def find_or_refuse(services: Services, req: Request, resp: Response, exchange_id: str) -> Trace | None:
    """Find how an exchange went, or say that no such trace is kept, and how long one may be. Raises ReadError."""
    trace = await find_trace(services, exchange_id)
    if trace is None:
        seconds = services.settings.trace_retention_seconds
        kept = f"traces are kept for {seconds} s" if services.is_tracing else "this server keeps no traces"
        await refuse_routing(services, req, resp, "trace_unknown", known_as=exchange_id[:REPEATED], kept=kept)
    return trace


async def find_trace(services: Services, exchange_id: str) -> Trace | None:
    """Find how an exchange went, or goes. Raises ReadError."""
    # looked at first: one that ends meanwhile is found in the store
    running = [exchange for exchange in under_way(services) if exchange.id == exchange_id]
    if running:
        return to_trace_now(running[0])
    row = None if services.store is None else await services.store.trace(exchange_id)
    return to_trace(row) if row else None


async def list_traces(services: Services, asked: TraceQuery) -> Page:
    """Make a page of traces: those under way first, then the others, the newest first. Raises FieldError, ReadError."""
    running, after = _running_after(services, asked)
    ended = await _ended(services, replace(asked, after=after, limit=asked.limit + 1))
    if isinstance(ended, Missing):
        raise FieldError(AFTER, f"no exchange with the id {shown(asked.after)} left a trace here")
    # one that ended since it was looked at is told of as it ended
    known = {row.id for row in ended}
    found = [trace for trace in running if trace.id not in known and is_asked(trace, asked)]
    return to_page([*found, *map(to_trace, ended)], asked.limit)


def under_way(services: Services) -> list[Exchange]:
    """List the exchanges that are under way, the newest first."""
    running = [exchange for exchange in services.exchanges if isinstance(exchange, Exchange)]
    return sorted(running, key=_began, reverse=True)


def to_trace_now(exchange: Exchange) -> Trace:
    """Tell how an exchange goes that is under way."""
    return to_trace(to_trace_row(exchange), time.monotonic() - exchange.entered)


def is_asked(trace: Trace, asked: TraceQuery) -> bool:
    """Tell whether a trace under way is among those that are asked for, wherever they begin."""
    exact = ("state", "status", "model", "response_id")
    return (
        all(getattr(asked, name) in {None, getattr(trace, name)} for name in exact)
        and (asked.event is None or any(move.event == asked.event for move in trace.moves))
        and asked.until is None
    )


def _running_after(services: Services, asked: TraceQuery) -> tuple[list[Trace], str | None]:
    """Give those under way that a page may have, and the id that those of the store come after."""
    running = [to_trace_now(exchange) for exchange in under_way(services)]
    if asked.after is None:
        return running, None
    ids = [trace.id for trace in running]
    return (running[ids.index(asked.after) + 1 :], None) if asked.after in ids else ([], asked.after)


def _began(exchange: Exchange) -> float:
    return exchange.entered - sum(move.ms for move in exchange.trace) / 1000


async def _ended(services: Services, asked: TraceQuery) -> list[ExchangeRow] | Missing:
    if services.store is None:
        return [] if asked.after is None else Missing()
    return await services.store.traces(asked)
