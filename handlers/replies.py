"""From an exchange to its HTTP response: a refusal, a stream of frames, or one JSON body."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
from falcon.asgi import Response

from handlers.exchange import Exchange
from handlers.mapping.to_row import to_session_cache
from handlers.watch import Client
from handlers.wire.events import Failed, Terminal
from handlers.wire.sse import DONE, to_frame
from machines.exchange import REFUSALS, State

CLIENT_GONE = 499  # nginx's code for it; nobody is there to read this


async def answer(exchange: Exchange, client: Client, resp: Response) -> None:
    """Wait for the exchange's first word, then answer with what it turned out to be."""
    client.on_gone(exchange.leave)
    await exchange.outbox.first()
    resp.set_header("X-Interlock-Exchange", exchange.id)
    if exchange.state is State.REFUSED:
        refuse(exchange, resp)
    elif exchange.state is State.ABANDONED:
        _end_early(exchange, resp)
    else:
        if exchange.unseen:
            resp.set_header("X-Interlock-Warning", f"unseen parts: {len(exchange.unseen)}")
        if exchange.cached_tokens is not None:
            resp.set_header("X-Session-Cache", to_session_cache(exchange.cached_tokens, exchange.chain))
        await (_stream if exchange.wants_stream else _whole)(exchange, client, resp)


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


async def _stream(exchange: Exchange, client: Client, resp: Response) -> None:
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
    resp.stream = _frames(exchange, client)


async def _frames(exchange: Exchange, client: Client) -> AsyncIterator[bytes]:
    async for number, event in exchange.outbox:
        yield to_frame(event, number)
        if isinstance(event, Terminal):
            _delivered(exchange, client)
            yield DONE


async def _whole(exchange: Exchange, client: Client, resp: Response) -> None:
    async for _, event in exchange.outbox:
        if isinstance(event, Terminal):
            break
    else:
        _end_early(exchange, resp)
        return
    media: Any = event.response
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
