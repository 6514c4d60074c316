"""The Falcon resources that tell what is served, and whether it is well."""

from http import HTTPStatus
from typing import Any

from falcon.asgi import Request, Response

from handlers.models import Binding
from handlers.registry import Registry
from handlers.services import Services
from machines.binding import State

RETRY_AFTER = {"loading": "2", "error": "10"}  # seconds


class ModelList:
    """GET /v1/models: the models by name."""

    def __init__(self, models: Registry) -> None:
        self._models = models

    async def on_get(self, _: Request, resp: Response) -> None:
        resp.media = {"object": "list", "data": [to_model(self._models, name) for name in self._models]}


class Health:
    """GET /health: how the server and each model is; 503 only while no model can serve."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._models = services.models
        self._writes = services.writes

    async def on_get(self, _: Request, resp: Response) -> None:
        status, can_serve = to_status(self._models)
        if not can_serve:
            resp.status = HTTPStatus.SERVICE_UNAVAILABLE
            resp.set_header("Retry-After", RETRY_AFTER[status])
        store, unwritten = self._services.store, len(self._writes.failed)
        has_lost_file = store is not None and store.has_lost_file
        if status == "ok" and (unwritten or self._writes.markers or has_lost_file):
            status = "degraded"
        models = {name: to_condition(self._models, name) for name in self._models}
        resp.media = {
            "status": status, "models": models, "unwritten_rows": unwritten, "database_lost": has_lost_file,
        }  # fmt: skip

    on_head = on_get


def to_model(models: Registry, name: str) -> dict[str, Any]:
    """Make the API's object of one model."""
    return {"id": name, "object": "model", "created": models.created(name), "owned_by": "interlock"}


def to_status(models: Registry) -> tuple[str, bool]:
    """Sum up how the models are, and whether any can serve."""
    states = {binding.look() for binding in models.values()}
    if State.READY not in states:
        return "loading" if State.LOADING in states else "error", False
    if State.BROKEN in states or any(_is_strained(models, name) for name in models):
        return "degraded", True
    return "loading" if State.LOADING in states else "ok", True


def to_condition(models: Registry, name: str) -> dict[str, Any]:
    """Say how one model is, and how the load of the one that is to replace it goes or went."""
    binding, replacement = models[name], models.replacement(name)
    slots = binding.slots
    condition = {**_to_load(binding, models.clock()), "waiting": slots.waiting, "running": slots.running}
    return {**condition, "load": _to_load(replacement, models.clock())} if replacement else condition


def _to_load(binding: Binding, now: float) -> dict[str, Any]:
    state = binding.look()
    if state is State.LOADING:
        return {"state": state.value, "seconds": round(now - binding.started_at, 1)}
    if binding.reason is not None:
        return {"state": State.BROKEN.value, "reason": binding.reason}
    return {"state": state.value}


def _is_strained(models: Registry, name: str) -> bool:
    replacement = models.replacement(name)
    return models[name].slots.is_full or (replacement is not None and replacement.reason is not None)
