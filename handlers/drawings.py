"""The machines as they are drawn, and the path of one exchange lit in the drawing of the machine it followed."""

from falcon.asgi import Request, Response

from handlers.mapping.to_drawing import to_drawing, to_lit_drawing
from handlers.services import Services
from handlers.traces import find_trace, refuse_unknown
from handlers.unrouted import refuse_routing
from machines.tables import TABLES

SVG = "image/svg+xml"
NAMES = [table.name for table in TABLES]
LONGEST = 256  # characters of a name that a message repeats


class Diagram:
    """GET /interlock/diagrams/{machine}.svg."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, machine: str) -> None:
        if machine in NAMES:
            resp.content_type, resp.text = SVG, to_drawing(machine)
        else:
            known = {"machine": machine[:LONGEST], "machines": ", ".join(NAMES)}
            await refuse_routing(self._services, req, resp, "diagram_unknown", **known)


class LitDiagram:
    """GET /interlock/exchanges/{id}.svg."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: Request, resp: Response, exchange_id: str) -> None:
        trace = await find_trace(self._services, exchange_id)
        if trace is None:
            await refuse_unknown(self._services, req, resp, exchange_id)
        else:
            resp.content_type, resp.text = SVG, to_lit_drawing(trace)
