"""What a server needs before its first request: the models' engines, the store, and words for its operator."""

import logging
import os
import sys
from typing import Any

from engine.errors import LoadError
from engine.loading import check_source, memory_bytes, mlx_engine
from engine.pieces import Engine
from engine.starter import NAME, ensure_starter
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import Settings
from handlers.writes import Writes
from storage.store import DuckStore, open_store

log = logging.getLogger("interlock")

BOOT_ERROR = 4  # gunicorn's code for a worker that must not be started again
PATIENCE = 20.0  # seconds: a worker being replaced needs a moment to let go of the database
PACE = 0.02  # seconds between commits of rows, where no client waits for one
READY = """
Interlock serves {name} on http://{host}:{port}

  curl -N http://{host}:{port}/v1/responses -H 'Content-Type: application/json'{token} \\
    -d '{{"model": "{name}", "input": "What is the capital of France?", "temperature": 0, "stream": true}}'

What it does is shown on http://{host}:{port}/console
"""


def prepare(settings: Settings) -> None:
    """Check the database and the models' sources, or fetch the starter model. Raises StoreError, LoadError."""
    if settings.db is not None:
        open_store(settings.db).close_now()
    for source in settings.models.values():
        check_source(source)
    if not settings.models:
        ensure_starter()


def to_services(settings: Settings) -> Services:
    """Make the services of one server process. Raises StoreError, LoadError; models load later."""
    models = to_registry(settings)
    store = to_store(settings)
    log.info("responses are kept %s", f"in {settings.db}" if settings.db else "nowhere")
    return Services(
        settings=settings,
        models=models,
        store=store,
        writes=Writes(settings.persist_hard_ms / 1000, settings.marker_ttl_ms / 1000),
        announce=lambda name: announce(settings, name),
        give_up=give_up,
    )


def to_store(settings: Settings) -> DuckStore | None:
    """Open what the settings say responses are kept in. Raises StoreError."""
    return None if settings.db is None else open_store(settings.db, PATIENCE, 0.0 if settings.durable else PACE)


def to_registry(settings: Settings) -> Registry:
    """Register the models that are served from the start; names of one source share one model. Raises LoadError."""
    sources = settings.models or {NAME: str(ensure_starter())}
    distinct = dict.fromkeys(sources.values())
    share = memory_bytes() // 4 // len(distinct) if settings.cache_bytes is None else settings.cache_bytes
    limits = {
        "capacity": settings.capacity, "cache_bytes": share, "prefill_step_size": settings.prefill_step,
        "stall_seconds": settings.stall_seconds,
    }  # fmt: skip

    def make(source: str) -> Engine:
        return make_engine(source, **limits)

    models = Registry(make, queue_limit=settings.queue_limit)
    engines = {source: make(source) for source in distinct}
    for name, source in sources.items():
        models.register(name, engines[source])
    return models


def make_engine(source: str, **limits: Any) -> Engine:
    """Make the engine of a model that is yet to be loaded. Raises LoadError for what cannot be one."""
    try:
        check_source(source)
    except (OSError, RuntimeError, ValueError) as error:  # a path too long, not ours to read, or of no such user
        text = f"{source!r} cannot be looked up: {error}."
        raise LoadError(text) from error
    return mlx_engine(source, **limits)


def give_up() -> None:
    """Stop the server, for none of its models could be loaded."""
    log.error("no model could be loaded, so the server stops; correct --model and start it again")
    logging.shutdown()
    os._exit(BOOT_ERROR)


def announce(settings: Settings, name: str) -> None:
    """Tell the operator that a model can be asked, and how."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - it is shown
    host = f"[{shown}]" if ":" in shown.strip("[]") and not shown.startswith("[") else shown
    token = " -H 'Authorization: Bearer TOKEN'" if settings.tokens else ""
    if settings.log == "json":
        log.info("model %s is served on http://%s:%d", name, host, settings.port)
        return
    ready = READY.format(name=name, host=host, port=settings.port, token=token)
    print(ready, file=sys.stderr, flush=True)  # noqa: T201
