"""The app that live tests put behind a real gunicorn: a model for each scenario, all scripted.

SLOW_DISK is how many seconds each row takes to be written.
"""

import asyncio
import os

from engine.pieces import Text
from engine.scripted import Pause, ScriptedEngine
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import from_env
from storage.opening import open_database
from storage.store import DuckStore
from tests.sequences.test_text import SCENARIOS

MODELS = Registry(lambda _: ScriptedEngine(SCENARIOS["plain_text"]))
for name, script in {**SCENARIOS, "held": [Text("The"), Pause()]}.items():
    MODELS.register(name, ScriptedEngine(script))


class SlowStore(DuckStore):
    """A store on a slow disk."""

    async def put(self, row):
        await asyncio.sleep(float(os.environ.get("SLOW_DISK", "0")))
        await super().put(row)


app = create_app(
    Services(
        settings=from_env(),
        models=MODELS,
        store=SlowStore(open_database(os.environ["INTERLOCK_DB"], patience=20)),
    )
)
