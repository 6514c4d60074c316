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
    """GET /health: `ok` with 200, or 503 with `loading` or `error`, and how each model is."""

    def __init__(self, services: Services) -> None:
        self._models = services.models

    async def on_get(self, _: Request, resp: Response) -> None:
        models = {name: binding.readiness for name, binding in self._models.items()}
        status = "error" if "broken" in models.values() else "loading" if "loading" in models.values() else "ok"
        if status != "ok":
            resp.status = HTTPStatus.SERVICE_UNAVAILABLE
            resp.set_header("Retry-After", "2")
        resp.media = {"status": status, "models": models}
