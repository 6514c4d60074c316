"""The machines as they are drawn, and the path of one exchange lit in the drawing of the machine it followed."""

from falcon.asgi import Request, Response

from handlers.mapping.to_drawing import to_drawing, to_lit_drawing
from handlers.services import Services
from handlers.traces import find_or_refuse
from handlers.unrouted import REPEATED, refuse_routing
from machines.tables import TABLES

SVG = "image/svg+xml"
NAMES = [table.name for table in TABLES]


class Diagram:
    """GET /interlock/diagrams/{machine}.svg."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, machine: str) -> None:
        if machine in NAMES:
            resp.content_type, resp.text = SVG, to_drawing(machine)
        else:
            known = {"machine": machine[:REPEATED], "machines": ", ".join(NAMES)}
            await refuse_routing(self._services, req, resp, "diagram_unknown", **known)


class LitDiagram:
    """GET /interlock/exchanges/{id}.svg."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, exchange_id: str) -> None:
        if trace := await find_or_refuse(self._services, req, resp, exchange_id):
            resp.content_type, resp.text = SVG, to_lit_drawing(trace)
