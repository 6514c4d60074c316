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
        incoming = Incoming(
            method=req.method, path=req.path, body=Body(req), owner=to_owner(req), facts=to_facts(req),
        )  # fmt: skip
        exchange = Exchange(self._services, incoming)
        start(exchange)
        await answer(exchange, req.scope[KEY], resp)


def to_owner(req: Request) -> str:
    """Tell clients apart by what they authorize themselves with, so that none can probe the caches of another."""
    if caller := req.context.caller:
        return str(caller)
    shown = f"{req.get_header('Authorization') or ''}\n{req.get_header('x-api-key') or ''}"
    return hashlib.sha256(shown.encode()).hexdigest()


def to_facts(req: Request) -> dict[str, str]:
    """Tell what the log may say of who asks: the name of a token, never the token."""
    return {"caller": req.context.caller} if req.context.caller else {}
