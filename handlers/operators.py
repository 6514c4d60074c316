"""The Falcon resource by which operators load, swap and remove models, and who counts as one.

With tokens, an operator is whoever sends one, which the gate has seen to. Without, it is whoever asks from this
machine, not through a proxy and not from a page of elsewhere, whatever CORS lets such a page do.
"""

import logging
from http import HTTPStatus

import msgspec
from falcon.asgi import Request, Response

from engine.errors import LoadError
from handlers.body import Body
from handlers.catalog import to_model
from handlers.gate import Refused
from handlers.health import to_condition
from handlers.loopback import is_loopback, to_hostname
from handlers.metrics import Metrics
from handlers.replies import EXCHANGE_ID, to_error
from handlers.services import Services
from handlers.unrouted import REPEATED
from machines.binding import OPERATOR_REFUSALS

log = logging.getLogger("interlock.app")

LONGEST = 256  # characters of a name
FORWARDED = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip")


class Model:
    """/v1/models/{name}: one model, which operators may load, swap and remove."""

    def __init__(self, services: Services, metrics: Metrics) -> None:
        self._services = services
        self._models = services.models
        self._metrics = metrics
        self._limit = services.settings.max_body_bytes

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        if name in self._models:
            resp.media = {**to_model(self._models, name), **to_condition(self._models, name)}
        else:
            self._refuse(req, resp, self._unknown(name))

    async def on_put(self, req: Request, resp: Response, name: str) -> None:
        refused = judge_operator(req) or _judge_name(name) or await self._replace(req, name)
        if refused:
            self._refuse(req, resp, refused)
            return
        resp.status = HTTPStatus.ACCEPTED
        resp.media = {**to_model(self._models, name), **to_condition(self._models, name)}

    async def on_delete(self, req: Request, resp: Response, name: str) -> None:
        if refused := judge_operator(req):
            self._refuse(req, resp, refused)
        elif self._models.unregister(name):
            resp.media = {"id": name, "object": "model", "deleted": True}
        else:
            self._refuse(req, resp, self._unknown(name))

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

    def _refuse(self, req: Request, resp: Response, refused: Refused) -> None:
        row, known_as = OPERATOR_REFUSALS[refused.event], self._services.new_id("ex")
        log.info("%s %s %r: refused by %s %d", known_as, req.method, req.path[:REPEATED], refused.event, row.status)
        resp.set_header(EXCHANGE_ID, known_as)
        self._metrics.refused(refused.event, row.status)
        resp.status = row.status
        resp.media = to_error(row.type, row.code, row.param, row.message.format(**refused.facts))
        if row.retry_after is not None:
            resp.set_header("Retry-After", str(row.retry_after))

    def _unknown(self, name: str) -> Refused:
        return Refused("model_unknown", {"model": name, "models": ", ".join(self._models) or "none"})


def judge_operator(req: Request) -> Refused | None:
    """Tell why a client may not change models, if it may not."""
    if req.context.caller:
        return None
    client, origin = req.scope.get("client"), req.get_header("Origin")
    if not client or not is_loopback(client[0]):
        return Refused("client_remote")
    names = (header.decode("latin-1") for header, _ in req.scope["headers"])
    if header := next((name for name in names if name.startswith(FORWARDED)), None):
        return Refused("client_forwarded", {"header": header})
    if origin is not None and not is_loopback(to_hostname(origin)):
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
