"""Who may ask. With tokens, whoever sends one of them; without, whoever asks this machine by a name of its own.

A page on the web can have a browser on this machine ask 127.0.0.1: its Origin gives it away. If the page's own name was
pointed at 127.0.0.1 (DNS rebinding), the browser takes it for the same origin, but the Host is still that name.
"""

import asyncio
import hmac
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from falcon.asgi import Request, Response, WebSocket

from handlers.body import Body
from handlers.console.page import PATHS
from handlers.loopback import is_loopback, to_hostname
from handlers.services import Services
from handlers.unrouted import REPEATED, TurnedAwayError, refuse_routing

OPEN = frozenset({"/health", "/v1/health"}) | PATHS  # what needs no token: a look at health, and a page without data
PATIENCE = 2.0  # seconds for the body of a request that is refused
REALM = 'Bearer realm="interlock"'
CHALLENGES = {"token_absent": REALM, "token_wrong": f'{REALM}, error="invalid_token"'}


class Refused(NamedTuple):
    """A row that leaves ROUTING, and the facts its sentence tells."""

    event: str
    facts: Mapping[str, Any] = {}


class Gate:
    """Falcon middleware that judges each request before it is routed, and before its body is read.

    It leaves the name of the token as `req.context.caller`: empty if the server has no tokens, and None for what
    needs no token at one that has.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cors = services.settings.cors
        self._digests = {name: _to_digest(token) for name, token in services.settings.tokens.items()}

    async def process_request_ws(self, req: Request, _: WebSocket) -> None:
        """Judge a WebSocket before it is accepted."""
        if refused := self._judge(req):
            raise TurnedAwayError(refused.event, refused.facts)

    async def process_request(self, req: Request, resp: Response) -> None:
        refused = self._judge(req)
        if refused is None:
            return
        resp.complete = True
        if refused.event in CHALLENGES:
            resp.set_header("WWW-Authenticate", CHALLENGES[refused.event])
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):  # a client that is still sending may not read its reply
                await Body(req).discard()
        await refuse_routing(self._services, req, resp, refused.event, **refused.facts)

    def _judge(self, req: Request) -> Refused | None:
        req.context.caller = None if self._digests else ""
        return self._judge_token(req) if self._digests else self._judge_page(req)

    def _judge_token(self, req: Request) -> Refused | None:
        token = to_token(req)
        if token is None:
            return None if self._is_open(req) else Refused("token_absent")
        req.context.caller = self._to_name(token)
        return Refused("token_wrong") if req.context.caller is None else None

    def _to_name(self, token: bytes) -> str | None:
        given = sha256(token).digest()
        # all are compared, so that the time tells nothing
        names = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, given)]
        return names[0] if names else None

    def _judge_page(self, req: Request) -> Refused | None:
        host, origin = req.get_header("Host") or "", req.get_header("Origin")
        if not is_loopback(to_hostname(f"//{host}")):
            return Refused("host_foreign", {"host": host[:REPEATED]})
        if origin is None or self._is_allowed(origin) or is_loopback(to_hostname(origin)):
            return None
        return Refused("origin_foreign", {"origin": origin[:REPEATED]})

    def _is_open(self, req: Request) -> bool:
        return (req.method == "GET" and req.path in OPEN) or self._is_preflight(req)

    def _is_preflight(self, req: Request) -> bool:
        # a browser sends no token with it
        is_asked = req.method == "OPTIONS" and req.get_header("Access-Control-Request-Method") is not None
        return is_asked and self._is_allowed(req.get_header("Origin") or "")

    def _is_allowed(self, origin: str) -> bool:
        return "*" in self._cors or origin in self._cors


def to_token(req: Request) -> bytes | None:
    """Find the token a client sends: `x-api-key` decides where it is given, else the bearer token."""
    key = req.get_header("x-api-key")
    if key is None:
        scheme, _, key = (req.get_header("Authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
    return key.encode("latin-1", "replace")


def _to_digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
