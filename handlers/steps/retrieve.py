"""RETRIEVING and TELLING: what is stored of a response, what a job has come to, and all that is asked of either."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from handlers.exchange import Exchange
from handlers.lookup import look_up_row
from handlers.mapping.to_stored import to_input_items, to_page, to_resource
from handlers.mapping.to_struct import FieldError, to_query
from handlers.recovery import end_left
from handlers.services import Services
from machines.driver import interrupt
from storage.errors import ReadError, WriteError
from storage.rows import EventRow, JobRow, Missing, ResponseRow

log = logging.getLogger("interlock.exchange")

Found = Exchange | JobRow | ResponseRow


class Showing(Struct, frozen=True, kw_only=True):
    """The query of GET /v1/responses/{id}."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=-1)] = -1


class Listing(Struct, frozen=True, kw_only=True):
    """The query of a list: `limit` items beyond the one with id `after`."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


async def retrieve(exchange: Exchange) -> str:
    """Find the response, and do with it what was asked."""
    try:
        return await _retrieve(exchange)
    except FieldError as wrong:
        exchange.facts.update(param=wrong.param, reason=wrong.reason)
        return "field_invalid"
    except WriteError as error:
        log.warning("%s: %s", exchange.id, error, exc_info=error.__cause__)
        return "response_undeleted" if exchange.incoming.asked == "delete" else "response_unsettled"
    except (ReadError, msgspec.MsgspecError) as error:
        log.warning("%s: %s", exchange.id, error, exc_info=error.__cause__)
        return "response_unreadable"


async def tell(exchange: Exchange) -> str:
    """Tell a job's events, those that are there and those to come."""
    if exchange.told is not None:
        async with aclosing(exchange.told) as told:
            async for row in told:
                await exchange.outbox.tell(row)
    return "events_told"


async def _retrieve(exchange: Exchange) -> str:
    services, response_id, asked = exchange.services, exchange.facts["response_id"], exchange.incoming.asked
    if services.is_stopping:
        return "server_stopping"
    if asked == "delete" and services.writes.discard(response_id):
        return await _erase(exchange, is_known=True)
    found = await _find_job(exchange, response_id)
    if found is None:
        is_settled = await _settle(exchange, response_id)
        row = await look_up_row(services, response_id)
        if isinstance(row, Missing):
            return "response_unknown" if is_settled else "response_unsettled"
        found = row
    return await ASKED[asked](exchange, found)


async def _find_job(exchange: Exchange, response_id: str) -> Found | None:
    """Look among the jobs under way and those that ended. Raises StoreError."""
    services = exchange.services
    running: Exchange | None = services.jobs.get(response_id)
    if running is not None and running.job is not None:
        return running
    if services.store is None:
        return None
    job = await services.store.job(response_id, int(services.clock()))
    # one that nobody makes was left behind
    return None if job is None else await end_left(services, services.store, job)


async def _settle(exchange: Exchange, response_id: str) -> bool:
    """Wait for a write under way, try one again that failed, and tell whether the store must have the row."""
    services = exchange.services
    if services.writes.is_pending(response_id) or services.writes.retry(response_id):
        return await services.writes.settled(response_id, services.settings.write_wait_ms / 1000)
    return not services.writes.is_wedged(response_id)


async def _show(exchange: Exchange, found: Found) -> str:
    asked = to_query(exchange.incoming.query, Showing)
    if not asked.stream:
        exchange.body = to_body(found)
        return "stored_shown"
    if isinstance(found, ResponseRow):
        exchange.facts["cannot"] = "has no events to stream"
        return "not_background"
    exchange.told = await _read(exchange, found, asked.starting_after)
    return "events_asked"


async def _list(exchange: Exchange, found: Found) -> str:
    asked = to_query(exchange.incoming.query, Listing)
    items = to_input_items(exchange.facts["response_id"], to_given(found))
    exchange.body = to_page(items, asked.after, asked.limit, is_descending=asked.order == "desc")
    return "stored_shown"


async def _cancel(exchange: Exchange, found: Found) -> str:
    if isinstance(found, ResponseRow):
        exchange.facts["cannot"] = "cannot be cancelled"
        return "not_background"
    await stop(found)
    exchange.body = to_body(found)
    return "stored_shown"


async def _delete(exchange: Exchange, found: Found) -> str:
    await stop(found)
    if not await _settle(exchange, exchange.facts["response_id"]):
        return "response_unsettled"
    return await _erase(exchange)


async def _erase(exchange: Exchange, *, is_known: bool = False) -> str:
    services, response_id = exchange.services, exchange.facts["response_id"]
    cut_link(services, response_id)
    if services.store is not None:
        is_known = await services.store.delete(response_id) or is_known
    services.jobs.pop(response_id, None)
    exchange.body = {"id": response_id, "object": "response.deleted", "deleted": True}
    return "stored_deleted" if is_known else "response_unknown"


def cut_link(services: Services, response_id: str) -> None:
    """Let no trace that is yet to be kept name a response that is deleted now; the store sees to those it has."""
    for made in services.exchanges:
        if isinstance(made, Exchange) and made.known_as == response_id:
            made.known_as = None


async def stop(found: Found) -> None:
    """Cancel a job that is under way, and wait until it has ended; one that nears its end may still complete."""
    if isinstance(found, Exchange) and found.job is not None:
        interrupt(found, "client_cancelled")
        await found.job.journal.closed()


def to_body(found: Found) -> Any:
    """Make the resource of what was found."""
    match found:
        case JobRow():
            return msgspec.Raw(found.response_json.encode())
        case ResponseRow():
            return to_resource(found)
    return found.job and found.job.resource(found.output.items)


def to_given(found: Found) -> list[dict[str, Any]]:
    """Give the input items of what was found."""
    if isinstance(found, Exchange):
        return found.items
    text = found.items_json if isinstance(found, JobRow) else found.input_json
    return msgspec.json.decode(text, type=list[dict[str, Any]])


async def _read(exchange: Exchange, found: Exchange | JobRow, after: int) -> AsyncGenerator[EventRow]:
    """Give a job's events beyond a number, and its last one in any case. Raises ReadError."""
    if isinstance(found, Exchange) and found.job is not None:
        return found.job.journal.read(after)
    store = exchange.services.store
    stored = await store.told(exchange.facts["response_id"], -1) if store else []
    return _replay([row for row in stored if row.number > after] or stored[-1:])


async def _replay(rows: list[EventRow]) -> AsyncGenerator[EventRow]:
    for row in rows:
        yield row


ASKED: dict[str, Callable[[Exchange, Found], Awaitable[str]]] = {
    "show": _show,
    "list": _list,
    "cancel": _cancel,
    "delete": _delete,
}
