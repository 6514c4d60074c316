"""Requests that no resource takes: each is an exchange refused while routing."""

import logging
from collections.abc import Mapping
from typing import Any

import falcon
from falcon.asgi import Request, Response, WebSocket

from handlers.exchange import Exchange, Incoming
from handlers.mapping.to_struct import FieldError
from handlers.replies import EXCHANGE_ID, answer
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY

log = logging.getLogger("interlock.app")

REPEATED = 256  # characters of a client's text that the log and a message repeat


class TurnedAwayError(Exception):
    """A WebSocket is refused before it is accepted, by a row that leaves ROUTING."""

    def __init__(self, event: str, facts: Mapping[str, Any]) -> None:
        super().__init__(event)
        self.event = event
        self.facts = facts


class NamedReplies:
    """Falcon middleware that gives an id to replies which no exchange made, those that only tell what there is."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def process_response(self, _req: Request, resp: Response, _resource: Any, _succeeded: bool) -> None:  # noqa: FBT001
        if resp.get_header(EXCHANGE_ID) is None:
            resp.set_header(EXCHANGE_ID, self._services.new_id("ex"))


class Unrouted:
    """Answers what Falcon raises: no such route, no such method there, a request that is malformed, a crash.

    A WebSocket has no reply before it is accepted: it is turned away, and the log says by which row.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def unknown(
        self, req: Request, resp: Response | None, _error: Exception, _params: Any, ws: WebSocket | None = None
    ) -> None:
        await refuse_routing(self._services, req, resp or ws, "route_unknown")

    async def wrong_method(
        self, req: Request, resp: Response | None, error: falcon.HTTPError, _params: Any, ws: WebSocket | None = None
    ) -> None:
        allowed = dict(error.headers or {}).get("Allow", "")
        if resp is not None:
            resp.set_header("Allow", allowed)
        await refuse_routing(self._services, req, resp or ws, "method_not_allowed", allowed=allowed)

    async def malformed(
        self, req: Request, resp: Response | None, error: falcon.HTTPError, _params: Any, ws: WebSocket | None = None
    ) -> None:
        reason = str(error.description or error.status).rstrip(".")
        await refuse_routing(self._services, req, resp or ws, "request_malformed", reason=reason)

    async def turned_away(
        self, req: Request, resp: Response | None, error: TurnedAwayError, _params: Any, ws: WebSocket | None = None
    ) -> None:
        await refuse_routing(self._services, req, resp or ws, error.event, **error.facts)

    async def crashed(
        self, req: Request, resp: Response | None, error: Exception, _params: Any, ws: WebSocket | None = None
    ) -> None:
        log.error("a resource crashed", exc_info=error)
        await refuse_routing(self._services, req, resp or ws, "crashed")


async def refuse_routing(
    services: Services, req: Request, reply: Response | WebSocket | None, event: str, **facts: str
) -> None:
    """Answer a request with a row that leaves ROUTING."""
    if caller := getattr(req.context, "caller", None):
        facts["caller"] = caller
    known = {"method": req.method, "path": req.path[:REPEATED], **facts}
    exchange = Exchange(
        services, Incoming(method=to_method(req), path=req.uri_template or "", event=event, facts=known)
    )
    start(exchange)
    if isinstance(reply, Response):
        await answer(exchange, req.scope[KEY], reply)
    elif reply is not None and not reply.closed:
        await reply.close()


async def refuse_query(services: Services, req: Request, resp: Response, wrong: FieldError) -> None:
    """Answer a request whose query cannot be read."""
    await refuse_routing(services, req, resp, "query_invalid", param=wrong.param, reason=wrong.reason)


def to_method(req: Request) -> str:
    """Give a request's method as a trace may tell it: any word can be one, and what a client says is not kept."""
    return req.method if req.method in falcon.COMBINED_METHODS else ""
