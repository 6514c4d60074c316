"""The app that live tests put behind a real gunicorn: a model for each scenario, all scripted.

SLOW_DISK is how many seconds each row takes to be written. A model whose source is a pipe loads until somebody writes
to that.
"""

import asyncio
import os
from pathlib import Path

from engine.pieces import Text
from engine.scripted import Pause, ScriptedEngine
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import from_env
from storage.opening import open_database
from storage.store import DuckStore
from tests.sequences.test_text import SCENARIOS


class LateEngine(ScriptedEngine):
    """A model that takes its time to load."""

    def __init__(self, source: str) -> None:
        super().__init__(SCENARIOS["plain_text"])
        self._source = Path(source)

    async def load(self) -> None:
        if self._source.is_fifo():
            await asyncio.to_thread(self._source.read_bytes)
        await super().load()


SETTINGS = from_env()
MODELS = Registry(LateEngine, queue_limit=SETTINGS.queue_limit)
for name, script in {**SCENARIOS, "held": [Text("The"), Pause()]}.items():
    MODELS.register(name, ScriptedEngine(script))


class SlowStore(DuckStore):
    """A store on a slow disk."""

    async def put(self, row):
        await asyncio.sleep(float(os.environ.get("SLOW_DISK", "0")))
        await super().put(row)


app = create_app(
    Services(
        settings=SETTINGS,
        models=MODELS,
        store=SlowStore(open_database(os.environ["INTERLOCK_DB"], patience=20)),
    )
)
