"""WebSocket on /v1/responses (Open Responses 2026-04-24): one response after another over one connection.

Each frame is an exchange like any request over HTTP; its events are text frames. What a connection answered it can
continue, stored or not, until it is closed; a continuation that failed is forgotten.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Any

import msgspec
from falcon.asgi import WebSocket
from falcon.errors import PayloadTypeError, WebSocketDisconnected

from handlers.body import TextBody
from handlers.exchange import Exchange, Incoming
from handlers.replies import EXCHANGE_ID
from handlers.services import Services
from handlers.steps import start
from handlers.wire.events import Event, Terminal
from handlers.wire.sse import to_data
from machines.exchange import State
from storage.rows import EventRow, ResponseRow

log = logging.getLogger("interlock.socket")

CREATE = "response.create"
CHAINS_KEPT = 64  # of a connection; the oldest is forgotten first
FRAMES_WAITING = 16
GOING_AWAY, POLICY_VIOLATION, NORMAL = 1001, 1008, 1000  # close codes, RFC 6455 section 7.4.1


class Frame(msgspec.Struct, frozen=True):
    """What must be known of a frame before it is read as a request."""

    type: Any = None


class Chains(OrderedDict[str, list[ResponseRow]]):
    """The chains of the responses that a connection answered, by the id of the last one."""

    def keep(self, chain: list[ResponseRow]) -> None:
        """Keep a chain, and forget the oldest ones."""
        self[chain[-1].id] = chain
        while len(self) > CHAINS_KEPT:
            self.popitem(last=False)


class Socket:
    """One connection: frames in, one exchange at a time, events out."""

    def __init__(self, services: Services, ws: WebSocket, path: str, owner: str, facts: dict[str, str]) -> None:
        self._services = services
        self._ws = ws
        self._path = path
        self._owner = owner
        self._facts = facts
        self._chains = Chains()
        # None: the connection has lasted long enough; a number closes it with that code
        self._frames: asyncio.Queue[str | int | None] = asyncio.Queue()
        self._exchange: Exchange | None = None
        self._is_gone = False

    async def serve(self) -> None:
        """Answer frames until the client leaves, the server stops or the connection has lasted long enough."""
        listening = asyncio.create_task(self._listen(), name="socket")
        expiry = asyncio.get_running_loop().call_later(self._services.settings.socket_seconds, self._expire)
        self._services.sockets.add(self)
        try:
            while not isinstance(frame := await self._frames.get(), int):
                await self._answer(frame)
            if not self._is_gone:
                await self._ws.close(frame)
        except WebSocketDisconnected:
            pass
        finally:
            self._services.sockets.discard(self)
            expiry.cancel()
            listening.cancel()

    def stop(self) -> None:
        """Close the connection once the response that is under way has ended."""
        self._frames.put_nowait(GOING_AWAY)

    def _expire(self) -> None:
        self._frames.put_nowait(None)
        self._frames.put_nowait(NORMAL)

    async def _listen(self) -> None:
        try:
            while True:
                frame = await self._receive()
                if self._frames.qsize() >= FRAMES_WAITING:
                    await self._ws.close(POLICY_VIOLATION)
                    break
                self._frames.put_nowait(frame)
        except WebSocketDisconnected:
            self._is_gone = True
        self._frames.put_nowait(NORMAL)
        if self._exchange is not None:
            self._exchange.leave()

    async def _receive(self) -> str:
        try:
            return await self._ws.receive_text()
        except PayloadTypeError:  # a binary frame
            return ""

    async def _answer(self, frame: str | None) -> None:
        exchange = self._exchange = Exchange(self._services, self._to_incoming(frame))
        start(exchange)
        if self._is_gone:
            exchange.leave()
        try:
            await self._tell(exchange)
        except WebSocketDisconnected:
            exchange.leave()
            raise
        finally:
            self._exchange = None

    def _to_incoming(self, frame: str | None) -> Incoming:
        return Incoming(
            method="WEBSOCKET",
            asked="talk",
            path=self._path,
            event="socket_expired" if frame is None else to_event(frame),
            owner=self._owner,
            facts=self._facts,
            body=TextBody((frame or "").encode()),
            local=self._chains,
        )

    async def _tell(self, exchange: Exchange) -> None:
        async for said in exchange.outbox:
            for number, event in said:
                if exchange.state is not State.ABANDONED:
                    await self._send(exchange, number, event)
        if exchange.state is State.REFUSED:
            await self._ws.send_text(to_error_frame(exchange))
        if exchange.state in {State.REFUSED, State.FAILED}:
            self._chains.pop(exchange.facts.get("previous_response_id", ""), None)

    async def _send(self, exchange: Exchange, number: int, event: Event | EventRow) -> None:
        if isinstance(event, EventRow):
            return
        await self._ws.send_text(to_data(event, number).decode())
        if isinstance(event, Terminal):
            self._seen(exchange)

    def _seen(self, exchange: Exchange) -> None:
        if not self._is_gone:
            exchange.outbox.acknowledge()
            if exchange.finish is not None and exchange.state is not State.FAILING:
                self._chains.keep([*exchange.chain, exchange.to_row()])


def to_event(frame: str) -> str:
    """Tell whether a frame is a request at all; what is wrong with one that is, its exchange will say."""
    try:
        kind = msgspec.json.decode(frame, type=Frame).type
    except msgspec.MsgspecError:
        return "route_found"
    return "route_found" if kind == CREATE else "frame_unknown"


def to_error_frame(exchange: Exchange) -> str:
    """Make the frame of a refusal."""
    row, param, message = exchange.refusal
    # the specification wants a code in every error frame, which not every row has over HTTP
    error = {"type": row.type, "code": row.code or exchange.event, "message": message, "param": param}
    headers = {EXCHANGE_ID: exchange.id}  # as Codex reads them
    if row.retry_after is not None:
        headers["Retry-After"] = str(row.retry_after)
    frame = {"type": "error", "status": row.status.value, "error": error, "headers": headers}
    return msgspec.json.encode(frame).decode()
