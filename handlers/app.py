"""create_app: the routes and what stands before them. Nothing else constructs the app."""

import asyncio
import logging
from typing import Any

import falcon
import falcon.asgi
import msgspec
from falcon.media import JSONHandler

from handlers.catalog import ModelList
from handlers.gate import Gate
from handlers.health import Health
from handlers.metrics import Exposition, Metrics
from handlers.operators import Model
from handlers.responses import Responses
from handlers.services import Services
from handlers.traces import Traces
from handlers.unrouted import Unrouted
from handlers.watch import DisconnectWatch
from machines.binding import State
from machines.driver import interrupt
from machines.exchange import EXCHANGE
from storage.errors import StoreError
from storage.store import Store

log = logging.getLogger("interlock.app")

EXPOSED = ("X-Interlock-Exchange", "X-Interlock-Warning", "X-Session-Cache", "Retry-After")


def create_app(services: Services) -> "Application":
    """Build the ASGI app over services that were made elsewhere; it starts and closes them with its lifespan."""
    middleware: list[Any] = [*_cors(services), Gate(services), Lifespan(services)]
    app = falcon.asgi.App(middleware=middleware)
    app.resp_options.media_handlers[falcon.MEDIA_JSON] = JSONHandler(
        dumps=msgspec.json.encode, loads=msgspec.json.decode
    )
    app.add_route("/v1/responses", Responses(services))
    metrics = Metrics(services)
    health = Health(services, metrics)
    app.add_route("/v1/models", ModelList(services.models))
    app.add_route("/v1/models/{name:path}", Model(services, metrics))
    app.add_route("/health", health)
    app.add_route("/v1/health", health)
    app.add_route("/traces/{known_as}", Traces(services))
    app.add_route("/metrics", Exposition(metrics))
    unrouted = Unrouted(services)
    app.add_error_handler(falcon.HTTPError, unrouted.malformed)
    app.add_error_handler(falcon.HTTPRouteNotFound, unrouted.unknown)
    app.add_error_handler(falcon.HTTPMethodNotAllowed, unrouted.wrong_method)
    app.add_error_handler(Exception, unrouted.crashed)
    return Application(app, services)


def _cors(services: Services) -> list[falcon.CORSMiddleware[Any, Any]]:
    origins = services.settings.cors
    if not origins:
        return []
    allowed = "*" if "*" in origins else origins
    return [falcon.CORSMiddleware(allow_origins=allowed, expose_headers=EXPOSED, allow_private_network=True)]


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
            interrupt(EXCHANGE, exchange, "server_stopping")


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
            try:
                await store.sweep(int(self._services.clock()), settings.trace_retention_seconds)
            except StoreError as error:
                log.warning("expired rows could not be deleted: %s", error, exc_info=error.__cause__)

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
        if self._services.store is not None:
            await self._services.store.close()
