"""The Falcon resource that lists what is served."""

from typing import Any

from falcon.asgi import Request, Response

from handlers.registry import Registry


class ModelList:
    """GET /v1/models: the models by name."""

    def __init__(self, models: Registry) -> None:
        self._models = models

    async def on_get(self, _: Request, resp: Response) -> None:
        resp.media = {"object": "list", "data": [to_model(self._models, name) for name in self._models]}


def to_model(models: Registry, name: str) -> dict[str, Any]:
    """Make the API's object of one model."""
    return {"id": name, "object": "model", "created": models.created(name), "owned_by": "interlock"}
