"""The Falcon resources of /v1/responses."""

import hashlib
from typing import Literal

from falcon.asgi import Request, Response, WebSocket

from handlers.body import Body
from handlers.exchange import Exchange, Incoming
from handlers.replies import answer
from handlers.services import Services
from handlers.socket import Socket
from handlers.steps import start
from handlers.unrouted import REPEATED
from handlers.watch import KEY

Asked = Literal["show", "list", "delete", "cancel"]


class Responses:
    """POST /v1/responses, and what takes the same body: one request, one exchange."""

    def __init__(self, services: Services, asked: Literal["create", "count", "compact"] = "create") -> None:
        self._services = services
        self._asked = asked

    async def on_websocket(self, req: Request, ws: WebSocket) -> None:
        await ws.accept()
        await Socket(self._services, ws, req.path, to_owner(req), to_facts(req)).serve()

    async def on_post(self, req: Request, resp: Response) -> None:
        incoming = Incoming(
            method=req.method,
            path=req.path,
            asked=self._asked,
            body=Body(req),
            owner=to_owner(req),
            facts=to_facts(req),
        )
        exchange = Exchange(self._services, incoming)
        start(exchange)
        await answer(exchange, req.scope[KEY], resp)


class Stored:
    """What is asked of one stored or background response."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def _ask(self, req: Request, resp: Response, asked: Asked, response_id: str) -> None:
        incoming = Incoming(
            method=req.method,
            path=req.uri_template or "",
            event="stored_asked",
            asked=asked,
            query=req.params,
            facts={"response_id": response_id[:REPEATED], **to_facts(req)},
        )
        exchange = Exchange(self._services, incoming)
        start(exchange)
        await answer(exchange, req.scope[KEY], resp)


class StoredResponse(Stored):
    """GET and DELETE /v1/responses/{id}."""

    async def on_get(self, req: Request, resp: Response, response_id: str) -> None:
        await self._ask(req, resp, "show", response_id)

    async def on_delete(self, req: Request, resp: Response, response_id: str) -> None:
        await self._ask(req, resp, "delete", response_id)


class Cancelling(Stored):
    """POST /v1/responses/{id}/cancel; its body, if there is one, is of no interest."""

    async def on_post(self, req: Request, resp: Response, response_id: str) -> None:
        await self._ask(req, resp, "cancel", response_id)


class InputItems(Stored):
    """GET /v1/responses/{id}/input_items."""

    async def on_get(self, req: Request, resp: Response, response_id: str) -> None:
        await self._ask(req, resp, "list", response_id)


def to_owner(req: Request) -> str:
    """Tell clients apart by what they authorize themselves with, so that none can probe the caches of another."""
    if caller := req.context.caller:
        return str(caller)
    shown = f"{req.get_header('Authorization') or ''}\n{req.get_header('x-api-key') or ''}"
    return hashlib.sha256(shown.encode()).hexdigest()


def to_facts(req: Request) -> dict[str, str]:
    """Tell what the log may say of who asks: the name of a token, never the token."""
    return {"caller": req.context.caller} if req.context.caller else {}
