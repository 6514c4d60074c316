"""The product over an engine that answers at once, so that nothing is measured but the server."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from engine.pieces import CacheUse, Constraint, Finish, Grammar, Piece, Sampling, Text, Tools
from handlers import report
from handlers.app import create_app
from handlers.exchange import Exchange
from handlers.registry import Registry
from handlers.services import Services
from handlers.serving import to_store
from handlers.settings import from_env
from storage import writer

PAUSE = 0.02  # seconds between the pieces of the model that is not instant
LONG = 3600.0  # seconds


class InstantDecoding:
    """Gives `max_tokens` pieces: without a pause, or with one and its own time as their text."""

    def __init__(self, sampling: Sampling, *, is_paced: bool) -> None:
        self._count = sampling.max_tokens
        self._is_paced = is_paced

    async def __aiter__(self) -> AsyncIterator[Piece]:
        for _ in range(self._count):
            if self._is_paced:
                await asyncio.sleep(PAUSE)
            yield Text(f"@{time.monotonic_ns()}" if self._is_paced else " word")
        yield Finish(reason="stop", prompt_tokens=8, completion_tokens=self._count)

    async def begun(self) -> int:
        return 0

    def keep(self) -> None:
        """Keep nothing."""

    def cancel(self) -> None:
        """Stop nothing: it never runs ahead of its reader."""


class InstantEngine:
    """An `Engine` without a model."""

    context_length = 100_000
    capacity = 256
    healthy = True
    step_seconds = 0.0
    cache: CacheUse | None = None

    def __init__(self, *, is_paced: bool) -> None:
        self._is_paced = is_paced

    async def load(self) -> None:
        """Load nothing."""

    async def tokenize(
        self, messages: list[dict[str, Any]], tools: Tools | None = None, effort: str | None = None
    ) -> list[int]:  # fmt: skip
        return [1] * 8

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> Grammar:
        msg = "the bench asks for no structure"
        raise NotImplementedError(msg)

    def decode(
        self,
        prompt: list[int],
        sampling: Sampling,
        tools: Tools | None = None,
        *,
        grammar: Grammar | None = None,
        owner: str = "",
    ) -> InstantDecoding:
        return InstantDecoding(sampling, is_paced=self._is_paced)

    async def close(self) -> None:
        """Close nothing."""


class Switch:
    """Turns the keeping of traces on or off at /tracing/on and /tracing/off; /tracing/written waits for the writer.

    Each replies with the seconds that the event loop has spent on traces so far.
    """

    def __init__(self, app: Any, services: Services) -> None:
        self._spent = 0.0
        self._keep = report.keep
        self._app = app
        self._services = services
        self._settings = services.settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _, tracing, word = scope.get("path", "").rpartition("/tracing/")
        if not tracing:
            await self._app(scope, receive, send)
            return
        # not before, for other measurements use this app too; one that is due would be inserted in a turn without any
        report.keep, writer.GATHERING = self._time, LONG
        services = self._services
        while services.exchanges:  # noqa: ASYNC110 - those that were answered, and have their rows written still
            await asyncio.sleep(0.001)
        if word == "written" and services.store is not None:
            await services.store.withdraw("resp_none")  # comes after the traces in the writer's queue
        services.settings = self._settings if word == "on" else replace(self._settings, trace_retention_seconds=0)
        spent = str(self._spent).encode()
        length = (b"content-length", str(len(spent)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": spent})

    def _time(self, exchange: Exchange) -> None:
        started = time.perf_counter()
        self._keep(exchange)
        self._spent += time.perf_counter() - started


def to_app() -> Any:
    """Make the app; its settings are the environment's."""
    settings = from_env()
    models = Registry(lambda _: InstantEngine(is_paced=False))
    for name in ("instant", "paced"):
        models.register(name, InstantEngine(is_paced=name == "paced"))
    services = Services(settings=settings, models=models, store=to_store(settings))
    return Switch(create_app(services), services)


app = to_app()
