"""GET /health: how the server is, in one word for anybody, in full for whoever may ask."""

import time
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from falcon.asgi import Request, Response

from handlers.metrics import Metrics
from handlers.models import Binding
from handlers.registry import Registry
from handlers.services import Services
from machines.binding import State
from machines.write import State as Writing

RETRY_AFTER = {"loading": "2", "error": "10", "stopping": "5"}  # seconds


class Health:
    """How the server and each model is; 503 only while no model can serve. No engine is asked, only looked at."""

    def __init__(self, services: Services, metrics: Metrics) -> None:
        self._services = services
        self._metrics = metrics
        self._started = time.monotonic()
        self._version = _to_version()

    async def on_get(self, req: Request, resp: Response) -> None:
        status, can_serve = ("stopping", False) if self._services.is_stopping else to_status(self._services.models)
        if not can_serve:
            resp.status = HTTPStatus.SERVICE_UNAVAILABLE
            resp.set_header("Retry-After", RETRY_AFTER[status])
        if status == "ok" and self._is_behind():
            status = "degraded"
        resp.media = {"status": status} if req.context.caller is None else {"status": status, **self._in_full()}

    on_head = on_get

    def _is_behind(self) -> bool:
        writes = self._services.writes
        return bool(writes.failed or writes.markers or self._has_lost_file)

    @property
    def _has_lost_file(self) -> bool:
        store = self._services.store
        return store is not None and store.has_lost_file

    def _in_full(self) -> dict[str, Any]:
        models = self._services.models
        return {
            "version": self._version,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            "models": {name: to_condition(models, name) for name in models},
            "writes": self._to_writes(),
            "database_lost": self._has_lost_file,
        }

    def _to_writes(self) -> dict[str, Any]:
        writes, last = self._services.writes, self._metrics.last_write
        age = last and round(self._services.clock() - last.at, 1)
        return {
            "last_landed": last and {"seconds_ago": age, "took_ms": round(last.ms, 1)},
            "under_way": len(writes.running),
            "late": sum(write.state is Writing.LATE for write in writes.known.values()),
            "wedged": len(writes.markers),
            "unwritten_rows": len(writes.failed),
        }


def _to_version() -> str | None:
    try:
        return version("interlock")
    except PackageNotFoundError:  # plain gunicorn in this folder needs no install
        return None


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
    slots, engine = binding.slots, binding.engine
    condition = {
        **_to_load(binding, models.clock()),
        "running": slots.running, "capacity": slots.capacity, "waiting": slots.waiting, "queue_limit": slots.limit,
        "engine": {"healthy": engine.healthy, "step_seconds": round(engine.step_seconds, 3)},
    }  # fmt: skip
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
