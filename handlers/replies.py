"""From an exchange to its HTTP response: a refusal, a stream of frames, or one JSON body."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec
from falcon.asgi import Response

from handlers.exchange import Exchange
from handlers.jobs import Job
from handlers.mapping.compaction import to_compaction
from handlers.mapping.to_row import to_session_cache
from handlers.mapping.to_stored import to_input_items
from handlers.outbox import Numbered
from handlers.watch import Client
from handlers.wire.events import TERMINAL, Failed, Terminal
from handlers.wire.sse import DONE, to_frame, to_name
from machines.exchange import REFUSALS, State

Events = AsyncIterable[list[Numbered]]

EXCHANGE_ID = "X-Interlock-Exchange"  # the header that names what made a reply
CLIENT_GONE = 499  # nginx's code for it; nobody is there to read this


async def answer(exchange: Exchange, client: Client, resp: Response) -> None:
    """Wait for the exchange's first word, then answer with what it turned out to be."""
    client.on_gone(exchange.leave)
    await exchange.outbox.first()
    resp.set_header(EXCHANGE_ID, exchange.id)
    if exchange.state is State.REFUSED:
        refuse(exchange, resp)
    elif exchange.state is State.ABANDONED:
        _end_early(exchange, resp)
    elif exchange.body is not None:
        resp.media = exchange.body
    elif exchange.told is not None:
        _stream(exchange.outbox, resp)
    else:
        await _respond(exchange, client, resp)


async def _respond(exchange: Exchange, client: Client, resp: Response) -> None:
    if exchange.unseen:
        resp.set_header("X-Interlock-Warning", f"unseen parts: {len(exchange.unseen)}")
    if exchange.job is not None:
        await _accept(exchange, exchange.job, client, resp)
        return
    if (cached := exchange.measured.cached_tokens) is not None:
        resp.set_header("X-Session-Cache", to_session_cache(cached, exchange.chain))
    if exchange.wants_stream:
        _stream(exchange.outbox, resp, seen=lambda: _delivered(exchange, client))
    else:
        await _whole(exchange, client, resp)


def refuse(exchange: Exchange, resp: Response) -> None:
    """Answer with the row that refused the exchange."""
    row, param, message = exchange.refusal
    resp.status = row.status
    resp.media = to_error(row.type, row.code, param, message)
    if row.retry_after is not None:
        resp.set_header("Retry-After", str(row.retry_after))


def to_error(kind: str, code: str | None, param: str | None, message: str) -> dict[str, Any]:
    """Make the API's error body."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


async def _accept(exchange: Exchange, job: Job, client: Client, resp: Response) -> None:
    if exchange.wants_stream:
        _stream(_told(job, client), resp)
    else:
        resp.media = job.resource([])


def _stream(events: Events, resp: Response, seen: Callable[[], None] = lambda: None) -> None:
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
    resp.stream = _frames(events, seen)


async def _frames(events: Events, seen: Callable[[], None]) -> AsyncIterator[bytes]:
    """Make frames; whoever asks for more after the terminal one has sent that, and `seen` hears of it."""
    async for said in events:
        yield b"".join(to_frame(event, number) for number, event in said)
        if to_name(said[-1][1]) in TERMINAL:
            seen()
            yield DONE


async def _told(job: Job, client: Client) -> AsyncIterator[list[Numbered]]:
    client.on_gone(job.journal.wake)
    async with aclosing(job.journal.read(has_left=lambda: client.is_gone)) as told:
        async for row in told:
            yield [(row.number, row)]


async def _whole(exchange: Exchange, client: Client, resp: Response) -> None:
    async for said in exchange.outbox:
        _, event = said[-1]
        if isinstance(event, Terminal):
            break
    else:
        _end_early(exchange, resp)
        return
    media: Any = event.response
    if exchange.incoming.asked == "compact":
        media = to_compaction(event.response, to_input_items(exchange.head.id, exchange.window))
    if isinstance(event, Failed) and event.response.error is not None:
        error = event.response.error
        resp.status = HTTPStatus.INTERNAL_SERVER_ERROR
        media = to_error(error.type, error.code, error.param, error.message)
    body = msgspec.json.encode(media)
    resp.content_type = "application/json"
    resp.set_stream(_once(exchange, client, body), len(body))


def _end_early(exchange: Exchange, resp: Response) -> None:
    if exchange.state is State.ABANDONED:
        resp.status = CLIENT_GONE
        return
    row = REFUSALS["crashed"]
    resp.status = row.status
    resp.media = to_error(row.type, row.code, row.param, row.message.format(**exchange.facts))


async def _once(exchange: Exchange, client: Client, body: bytes) -> AsyncIterator[bytes]:
    yield body
    _delivered(exchange, client)


def _delivered(exchange: Exchange, client: Client) -> None:
    if not client.is_gone:
        exchange.outbox.acknowledge()
