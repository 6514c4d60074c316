"""Requests that no resource takes: each is an exchange refused while routing."""

import logging
from typing import Any

import falcon
from falcon.asgi import Request, Response

from handlers.exchange import Exchange, Incoming
from handlers.replies import answer
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY

log = logging.getLogger("interlock.app")


class Unrouted:
    """Answers what Falcon raises: no such route, no such method there, a request that is malformed, a crash."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def unknown(self, req: Request, resp: Response, _error: Exception, _params: Any) -> None:
        await refuse_routing(self._services, req, resp, "route_unknown")

    async def wrong_method(self, req: Request, resp: Response, error: falcon.HTTPError, _params: Any) -> None:
        allowed = dict(error.headers or {}).get("Allow", "")
        resp.set_header("Allow", allowed)
        await refuse_routing(self._services, req, resp, "method_not_allowed", allowed=allowed)

    async def malformed(self, req: Request, resp: Response, error: falcon.HTTPError, _params: Any) -> None:
        reason = str(error.description or error.status).rstrip(".")
        await refuse_routing(self._services, req, resp, "request_malformed", reason=reason)

    async def crashed(self, req: Request, resp: Response, error: Exception, _params: Any) -> None:
        log.error("a resource crashed", exc_info=error)
        await refuse_routing(self._services, req, resp, "crashed")


async def refuse_routing(services: Services, req: Request, resp: Response, event: str, **facts: str) -> None:
    """Answer a request with a row that leaves ROUTING."""
    if caller := getattr(req.context, "caller", None):
        facts["caller"] = caller
    exchange = Exchange(services, Incoming(method=req.method, path=req.path[:256], event=event, facts=facts))
    start(exchange)
    await answer(exchange, req.scope[KEY], resp)
