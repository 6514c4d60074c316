"""What tests put in the place of the world: ids that count, a clock that stands, an app with a scripted model."""

import itertools
from collections.abc import Callable
from functools import partial

from engine import scripted
from engine.scripted import ScriptedEngine
from handlers.models import Binding, Slots
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
    return Services(
        settings=settings,
        models={MODEL: Binding(MODEL, engine, NOW, Slots(limit=settings.queue_limit))},
        store=store,
        boot_id="boot_1",
        clock=lambda: NOW,
        writes=Writes(clock=lambda: NOW),
        new_id=counting_ids(),
    )
