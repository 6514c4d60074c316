"""create_app: the routes and what stands before them. Nothing else constructs the app."""

from typing import Any

import falcon
import falcon.asgi
import msgspec
from falcon.media import JSONHandler

from handlers.application import Application
from handlers.catalog import ModelList
from handlers.console.page import Page
from handlers.drawings import Diagram, LitDiagram
from handlers.gate import Gate
from handlers.health import Health
from handlers.lifespan import Lifespan
from handlers.live import Live
from handlers.metrics import Exposition, Metrics
from handlers.operators import Model
from handlers.replies import EXCHANGE_ID
from handlers.responses import Cancelling, InputItems, Responses, StoredResponse
from handlers.services import Services
from handlers.traces import Exchanges, OneExchange
from handlers.unrouted import NamedReplies, TurnedAwayError, Unrouted

EXPOSED = (EXCHANGE_ID, "X-Interlock-Warning", "X-Session-Cache", "Retry-After")


def create_app(services: Services) -> Application:
    """Build the ASGI app over services that were made elsewhere; it starts and closes them with its lifespan."""
    lifespan = Lifespan(services)
    middleware: list[Any] = [*_cors(services), NamedReplies(services), Gate(services), lifespan]
    app = falcon.asgi.App(middleware=middleware)
    app.resp_options.media_handlers[falcon.MEDIA_JSON] = JSONHandler(
        dumps=msgspec.json.encode, loads=msgspec.json.decode
    )
    app.add_route("/v1/responses", Responses(services))
    app.add_route("/v1/responses/input_tokens", Responses(services, "count"))
    app.add_route("/v1/responses/compact", Responses(services, "compact"))
    app.add_route("/v1/responses/{response_id}", StoredResponse(services))
    app.add_route("/v1/responses/{response_id}/cancel", Cancelling(services))
    app.add_route("/v1/responses/{response_id}/input_items", InputItems(services))
    metrics = Metrics(services)
    health = Health(services, metrics)
    app.add_route("/v1/models", ModelList(services.models))
    app.add_route("/v1/models/{name:path}", Model(services, metrics))
    app.add_route("/health", health)
    app.add_route("/v1/health", health)
    _add_audit(app, services, metrics)
    app.add_route("/metrics", Exposition(metrics))
    unrouted = Unrouted(services)
    app.add_error_handler(falcon.HTTPError, unrouted.malformed)
    app.add_error_handler(falcon.HTTPRouteNotFound, unrouted.unknown)
    app.add_error_handler(falcon.HTTPMethodNotAllowed, unrouted.wrong_method)
    app.add_error_handler(Exception, unrouted.crashed)
    app.add_error_handler(TurnedAwayError, unrouted.turned_away)
    return Application(app, services, lifespan)


def _add_audit(app: falcon.asgi.App[Any, Any], services: Services, metrics: Metrics) -> None:
    app.add_route("/interlock/exchanges", Exchanges(services))
    app.add_route("/interlock/exchanges/{exchange_id}", OneExchange(services))
    app.add_route("/interlock/exchanges/{exchange_id}.svg", LitDiagram(services))
    app.add_route("/interlock/diagrams/{machine}.svg", Diagram(services))
    app.add_route("/interlock/live", Live(services, metrics))
    app.add_route("/console", Page())
    app.add_route("/console/{name}", Page())


def _cors(services: Services) -> list[falcon.CORSMiddleware[Any, Any]]:
    origins = services.settings.cors
    if not origins:
        return []
    allowed = "*" if "*" in origins else origins
    return [falcon.CORSMiddleware(allow_origins=allowed, expose_headers=EXPOSED, allow_private_network=True)]
