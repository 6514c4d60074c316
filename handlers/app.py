"""create_app: the routes, and the errors of requests that match none. Nothing else constructs the app."""

import asyncio
import logging
from typing import Any

import falcon
import falcon.asgi
import msgspec
from falcon.asgi import Request, Response
from falcon.media import JSONHandler

from handlers.catalog import Health, ModelList
from handlers.exchange import Exchange, Incoming
from handlers.models import Binding
from handlers.replies import answer
from handlers.responses import Responses
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY, DisconnectWatch

log = logging.getLogger("interlock.app")


def create_app(services: Services) -> DisconnectWatch:
    """Build the ASGI app over services that were made elsewhere; it starts and closes them with its lifespan."""
    app = falcon.asgi.App(middleware=[Lifespan(services)])
    app.resp_options.media_handlers[falcon.MEDIA_JSON] = JSONHandler(
        dumps=msgspec.json.encode, loads=msgspec.json.decode
    )
    app.add_route("/v1/responses", Responses(services))
    app.add_route("/v1/models", ModelList(services))
    app.add_route("/health", Health(services))
    app.add_route("/v1/health", Health(services))
    unrouted = Unrouted(services)
    app.add_error_handler(falcon.HTTPError, unrouted.malformed)
    app.add_error_handler(falcon.HTTPRouteNotFound, unrouted.unknown)
    app.add_error_handler(falcon.HTTPMethodNotAllowed, unrouted.wrong_method)
    app.add_error_handler(Exception, unrouted.crashed)
    return DisconnectWatch(app)


class Lifespan:
    """Loads the models in the background at start, so that health can say so; lets go of everything at the end."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def process_startup(self, _scope: Any, _event: Any) -> None:
        for binding in self._services.models.values():
            task = asyncio.create_task(self._load(binding), name=f"load {binding.name}")
            self._services.running.add(task)
            task.add_done_callback(self._services.running.discard)

    async def _load(self, binding: Binding) -> None:
        await binding.load()
        if binding.readiness == "ready":
            self._services.announce(binding.name)

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:
        for binding in self._services.models.values():
            await binding.engine.close()
        if self._services.store is not None:
            await self._services.store.close()


class Unrouted:
    """Requests that no resource takes: each is an exchange refused while routing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def unknown(self, req: Request, resp: Response, _error: Exception, _params: Any) -> None:
        await self._refuse(req, resp, "route_unknown")

    async def wrong_method(self, req: Request, resp: Response, error: falcon.HTTPError, _params: Any) -> None:
        allowed = dict(error.headers or {}).get("Allow", "")
        resp.set_header("Allow", allowed)
        await self._refuse(req, resp, "method_not_allowed", allowed=allowed)

    async def malformed(self, req: Request, resp: Response, error: falcon.HTTPError, _params: Any) -> None:
        await self._refuse(req, resp, "request_malformed", reason=str(error.description or error.status).rstrip("."))

    async def crashed(self, req: Request, resp: Response, error: Exception, _params: Any) -> None:
        log.error("a resource crashed", exc_info=error)
        await self._refuse(req, resp, "crashed")

    async def _refuse(self, req: Request, resp: Response, event: str, **facts: str) -> None:
        exchange = Exchange(
            self._services, Incoming(method=req.method, path=req.path[:256], event=event, facts=facts)
        )  # fmt: skip
        start(exchange)
        await answer(exchange, req.scope[KEY], resp)
