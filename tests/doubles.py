"""What tests put in the place of the world: ids that count, a clock that stands, an app with a scripted model."""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from engine import scripted
from engine.scripted import ScriptedEngine
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import Settings
from handlers.writes import Writes
from storage.store import Store

MODEL = "scripted"
NOW = 1_750_000_000

say = partial(scripted.say, prompt_tokens=7)


def counting_ids() -> Callable[[str], str]:
    """Make ids that count from 1 for each prefix."""
    counts: dict[str, itertools.count[int]] = {}
    return lambda prefix: f"{prefix}_{next(counts.setdefault(prefix, itertools.count(1)))}"


def to_services(engine: ScriptedEngine, store: Store | None, settings: Settings | None = None) -> Services:
    settings = settings or Settings()
    models = Registry(lambda _: ScriptedEngine(), queue_limit=settings.queue_limit, clock=lambda: NOW)
    models.register(MODEL, engine)
    return Services(
        settings=settings,
        models=models,
        store=store,
        boot_id="boot_1",
        clock=lambda: NOW,
        writes=Writes(clock=lambda: NOW),
        new_id=counting_ids(),
    )


def hold(thing, name: str) -> asyncio.Event:
    """Make a method wait for ever; the event tells that it was called."""
    called = asyncio.Event()

    async def wait(*_, **__):
        called.set()
        await asyncio.Event().wait()

    setattr(thing, name, wait)
    return called


def watch(thing, name: str) -> asyncio.Event:
    """Tell when a method is called."""
    called, method = asyncio.Event(), getattr(thing, name)

    def call(*arguments, **named):
        called.set()
        return method(*arguments, **named)

    setattr(thing, name, call)
    return called
