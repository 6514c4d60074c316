"""The Falcon resources that tell what is served, and whether it is well."""

from http import HTTPStatus

from falcon.asgi import Request, Response

from handlers.services import Services


class ModelList:
    """GET /v1/models: the models by name."""

    def __init__(self, services: Services) -> None:
        self._models = services.models

    async def on_get(self, _: Request, resp: Response) -> None:
        resp.media = {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": binding.created_at, "owned_by": "interlock"}
                for name, binding in self._models.items()
            ],
        }


class Health:
    """GET /health: `ok`, `loading`, `degraded` or `error`, and how each model is; 503 while none is ready."""

    def __init__(self, services: Services) -> None:
        self._models = services.models
        self._writes = services.writes

    async def on_get(self, _: Request, resp: Response) -> None:
        models = {name: binding.readiness for name, binding in self._models.items()}
        states = set(models.values())
        status = "ok" if states <= {"ready"} else "degraded" if "ready" in states else "error"
        if self._writes.failed or self._writes.markers:
            status = "degraded"
        if "loading" in states:
            status = "loading"
        if "ready" not in states:
            resp.status = HTTPStatus.SERVICE_UNAVAILABLE
            resp.set_header("Retry-After", "2")
        resp.media = {"status": status, "models": models, "unwritten_rows": len(self._writes.failed)}

    on_head = on_get
