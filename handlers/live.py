"""GET /interlock/live: the moves of the last minutes, the models, and what is under way. Looked at, never asked for."""

import time
from typing import Annotated, Any

from falcon.asgi import Request, Response
from msgspec import Meta, Struct, to_builtins

from handlers.mapping.to_struct import FieldError, to_query
from handlers.metrics import Metrics
from handlers.recent import LONGEST
from handlers.registry import Registry
from handlers.services import Services
from handlers.traces import to_trace_now, under_way
from handlers.unrouted import refuse_query
from handlers.writes import Writes
from machines.write import State as Writing

MOST = 100  # of the writes, and of the exchanges under way


class Window(Struct, frozen=True):
    """How many seconds of moves are asked for."""

    seconds: Annotated[int, Meta(ge=60, le=LONGEST)] = 300


class Live:
    """What happens now, for a page that shows it."""

    def __init__(self, services: Services, metrics: Metrics) -> None:
        self._services = services
        self._recent = metrics.recent

    async def on_get(self, req: Request, resp: Response) -> None:
        services = self._services
        try:
            seconds = to_query(req.params, Window).seconds
        except FieldError as wrong:
            await refuse_query(services, req, resp, wrong)
            return
        resp.media = {
            "now": round(services.clock(), 3),
            "window_seconds": seconds,
            "tracing": services.is_tracing,
            "moves": [
                {"machine": machine, "event": event, "from": source, "to": target, "count": count}
                for (machine, event, source, target), count in self._recent.since(seconds).items()
            ],
            "models": [to_model(services.models, name) for name in services.models],
            "writes": to_writes(services.writes),
            "under_way": [to_trace_now(exchange) for exchange in under_way(services)[::-1][:MOST]],
        }


def to_model(models: Registry, name: str) -> dict[str, Any]:
    """Tell how a model is: its binding, its queue, and its pool of KV caches."""
    binding = models[name]
    slots, engine = binding.slots, binding.engine
    return {
        "name": name,
        "state": binding.look().name,
        "instance": binding.instance,
        "running": slots.running,
        "capacity": slots.capacity,
        "waiting": slots.waiting,
        "queue_limit": slots.limit,
        "step_seconds": round(engine.step_seconds, 3),
        "leases": binding.leases,
        "retains": binding.retains,
        "tombstones": binding.tombstones,
        "cache": to_builtins(engine.cache),
    }


def to_writes(writes: Writes) -> list[dict[str, Any]]:
    """Tell of the writes that have begun and not landed, the slowest first."""
    now = time.monotonic()
    begun = [write for write in writes.unended if write.state is not Writing.RESERVED]
    slowest = sorted(begun, key=lambda write: write.started)[:MOST]
    return [{"id": write.id, "state": write.state.name, "seconds": round(now - write.started, 3)} for write in slowest]
