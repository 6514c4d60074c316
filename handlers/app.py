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
from handlers.operators import Model
from handlers.recovery import recover
from handlers.replies import answer
from handlers.responses import Cancelling, InputItems, Responses, StoredResponse
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY, DisconnectWatch
from machines.binding import State
from machines.driver import interrupt
from storage.errors import StoreError
from storage.store import Store

log = logging.getLogger("interlock.app")

DELETE_SECONDS = 2.0  # how long a server that ends waits for rows that nobody is to find later


def create_app(services: Services) -> "Application":
    """Build the ASGI app over services that were made elsewhere; it starts and closes them with its lifespan."""
    app = falcon.asgi.App(middleware=[Lifespan(services)])
    app.resp_options.media_handlers[falcon.MEDIA_JSON] = JSONHandler(
        dumps=msgspec.json.encode, loads=msgspec.json.decode
    )
    app.add_route("/v1/responses", Responses(services))
    app.add_route("/v1/responses/input_tokens", Responses(services, "count"))
    app.add_route("/v1/responses/compact", Responses(services, "compact"))
    app.add_route("/v1/responses/{response_id}", StoredResponse(services))
    app.add_route("/v1/responses/{response_id}/cancel", Cancelling(services))
    app.add_route("/v1/responses/{response_id}/input_items", InputItems(services))
    models, health = services.models, Health(services)
    app.add_route("/v1/models", ModelList(models))
    app.add_route("/v1/models/{name:path}", Model(models, services.settings.token, services.settings.max_body_bytes))
    app.add_route("/health", health)
    app.add_route("/v1/health", health)
    unrouted = Unrouted(services)
    app.add_error_handler(falcon.HTTPError, unrouted.malformed)
    app.add_error_handler(falcon.HTTPRouteNotFound, unrouted.unknown)
    app.add_error_handler(falcon.HTTPMethodNotAllowed, unrouted.wrong_method)
    app.add_error_handler(Exception, unrouted.crashed)
    return Application(app, services)


class Application(DisconnectWatch):
    """The app as its server sees it."""

    def __init__(self, app: Any, services: Services) -> None:
        super().__init__(app)
        self._services = services

    def begin_drain(self, seconds: float) -> None:
        """Take no new requests; those under way that have not ended in `seconds` are ended, each with its row."""
        self._services.is_stopping = True
        asyncio.get_running_loop().call_later(seconds, self._stop)

    def _stop(self) -> None:
        for exchange in list(self._services.exchanges):
            interrupt(exchange, "server_stopping")


class Lifespan:
    """Loads the models in the background at start, so that health can say so; lets go of everything at the end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._chores: list[asyncio.Task[None]] = []

    async def process_startup(self, _scope: Any, _event: Any) -> None:
        task = asyncio.create_task(self._load(), name="load")
        self._services.running.add(task)
        task.add_done_callback(self._services.running.discard)
        self._chores.append(asyncio.create_task(self._watch(), name="watch"))
        if self._services.store is not None:
            await recover(self._services, self._services.store)
            self._chores.append(asyncio.create_task(self._sweep(self._services.store), name="sweep"))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._services.settings.watch_seconds)
            self._services.models.watch()

    async def _sweep(self, store: Store) -> None:
        settings = self._services.settings
        while True:
            await asyncio.sleep(settings.sweep_seconds)
            self._services.writes.sweep()
            await self._end_jobs(store)
            try:
                await store.sweep(int(self._services.clock()), settings.trace_retention_seconds)
            except StoreError as error:
                log.warning("expired rows could not be deleted: %s", error, exc_info=error.__cause__)

    async def _end_jobs(self, store: Store) -> None:
        for exchange in list(self._services.jobs.values()):
            if exchange.job is not None and exchange.job.is_final:
                await exchange.job.keep()
        await recover(self._services, store)

    async def _load(self) -> None:
        models = self._services.models
        models.start(self._services.announce)
        await models.settled()
        if models and all(binding.look() is State.BROKEN for binding in models.values()):
            self._services.give_up()

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:
        for chore in self._chores:
            chore.cancel()
        await self._services.models.close()
        await self._services.writes.provisional.close(DELETE_SECONDS)
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
