"""The Falcon resource of /v1/responses."""

import hashlib

from falcon.asgi import Request, Response

from handlers.body import Body
from handlers.exchange import Exchange, Incoming
from handlers.replies import answer
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY


class Responses:
    """POST /v1/responses: one request, one exchange."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_post(self, req: Request, resp: Response) -> None:
        incoming = Incoming(method=req.method, path=req.path, body=Body(req), owner=to_owner(req))
        exchange = Exchange(self._services, incoming)
        start(exchange)
        await answer(exchange, req.scope[KEY], resp)


def to_owner(req: Request) -> str:
    """Tell clients apart by what they authorize themselves with, so that none can probe the caches of another."""
    return hashlib.sha256((req.get_header("Authorization") or "").encode()).hexdigest()
