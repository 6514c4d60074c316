"""The Falcon resource by which operators load, swap and remove models, and who counts as one.

With INTERLOCK_TOKEN, an operator is whoever sends it. Without, it is whoever asks from this machine, not through a
proxy, and at a loopback name: a page whose own name was pointed at 127.0.0.1 still says that name as its host.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from falcon.asgi import Request, Response

from engine.errors import LoadError
from handlers.body import Body
from handlers.catalog import to_condition, to_model
from handlers.registry import Registry
from handlers.replies import to_error
from machines.binding import OPERATOR_REFUSALS

LONGEST = 256  # characters of a name
FORWARDED = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip")
REALM = 'Bearer realm="interlock"'
CHALLENGES = {"token_absent": REALM, "token_wrong": f'{REALM}, error="invalid_token"'}


class Refused(NamedTuple):
    """A row of OPERATOR_REFUSALS, and the facts its sentence tells."""

    event: str
    facts: Mapping[str, Any] = {}


class Model:
    """/v1/models/{name}: one model, which operators may load, swap and remove."""

    def __init__(self, models: Registry, token: str | None, max_body_bytes: int) -> None:
        self._models = models
        self._token = token
        self._limit = max_body_bytes

    async def on_get(self, _: Request, resp: Response, name: str) -> None:
        if name in self._models:
            resp.media = {**to_model(self._models, name), **to_condition(self._models, name)}
        else:
            refuse(resp, self._unknown(name))

    async def on_put(self, req: Request, resp: Response, name: str) -> None:
        refused = judge_operator(req, self._token) or _judge_name(name) or await self._replace(req, name)
        if refused:
            refuse(resp, refused)
            return
        resp.status = HTTPStatus.ACCEPTED
        resp.media = {**to_model(self._models, name), **to_condition(self._models, name)}

    async def on_delete(self, req: Request, resp: Response, name: str) -> None:
        if refused := judge_operator(req, self._token):
            refuse(resp, refused)
        elif self._models.unregister(name):
            resp.media = {"id": name, "object": "model", "deleted": True}
        else:
            refuse(resp, self._unknown(name))

    async def _replace(self, req: Request, name: str) -> Refused | None:
        source = to_source(await Body(req).read(self._limit), self._limit)
        if isinstance(source, Refused):
            return source
        if loading := self._models.under_way(name):
            seconds = round(self._models.clock() - loading.started_at, 1)
            return Refused("load_under_way", {"model": name, "seconds": seconds})
        try:
            engine = self._models.make_engine(source)
        except LoadError as error:
            return Refused("source_invalid", {"reason": str(error)})
        self._models.replace(name, engine)
        return None

    def _unknown(self, name: str) -> Refused:
        return Refused("model_unknown", {"model": name, "models": ", ".join(self._models) or "none"})


def refuse(resp: Response, refused: Refused) -> None:
    """Answer with the row that refused an operator."""
    row = OPERATOR_REFUSALS[refused.event]
    resp.status = row.status
    resp.media = to_error(row.type, row.code, row.param, row.message.format(**refused.facts))
    if row.retry_after is not None:
        resp.set_header("Retry-After", str(row.retry_after))
    if refused.event in CHALLENGES:
        resp.set_header("WWW-Authenticate", CHALLENGES[refused.event])


def judge_operator(req: Request, token: str | None) -> Refused | None:
    """Tell why a client may not change models, if it may not."""
    if token is not None:
        return _judge_token(req.get_header("Authorization"), token)
    client, host, origin = req.scope.get("client"), req.get_header("Host") or "", req.get_header("Origin")
    if not client or not _is_loopback(client[0]):
        return Refused("client_remote")
    names = (header.decode("latin-1") for header, _ in req.scope["headers"])
    if header := next((name for name in names if name.startswith(FORWARDED)), None):
        return Refused("client_forwarded", {"header": header})
    if not _is_loopback(_to_hostname(f"//{host}")):
        return Refused("host_foreign", {"host": host})
    if origin is not None and not _is_loopback(_to_hostname(origin)):
        return Refused("origin_foreign", {"origin": origin})
    return None


def to_source(body: bytes | None, limit: int) -> str | Refused:
    """Read the one field of a PUT; others are ignored."""
    if body is None:
        return Refused("body_too_large", {"limit": limit})
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return Refused("json_invalid")
    if not isinstance(decoded, dict):
        return Refused("body_not_object")
    source = decoded.get("source")
    if source is None or source == "":
        return Refused("source_missing")
    return source if isinstance(source, str) else Refused("source_mistyped")


def _judge_name(name: str) -> Refused | None:
    is_fit = 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip(" /")
    return None if is_fit else Refused("name_invalid", {"longest": LONGEST})


def _judge_token(header: str | None, token: str) -> Refused | None:
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given:
        return Refused("token_absent")
    is_right = hmac.compare_digest(given.encode("latin-1", "replace"), token.encode("utf-8", "surrogateescape"))
    return None if is_right else Refused("token_wrong")


def _to_hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
