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
from storage.rows import ResponseRow
from storage.store import open_store
from tests.sequences.test_text import SCENARIOS

MODELS = Registry(lambda _: ScriptedEngine(SCENARIOS["plain_text"]))
for name, script in {**SCENARIOS, "held": [Text("The"), Pause()]}.items():
    MODELS.register(name, ScriptedEngine(script))

STORE = open_store(os.environ["INTERLOCK_DB"], patience=20)
put = STORE.put


async def put_slowly(row: ResponseRow) -> None:
    """Write a row as a slow disk would."""
    await asyncio.sleep(float(os.environ["SLOW_DISK"]))
    await put(row)


if "SLOW_DISK" in os.environ:
    STORE.put = put_slowly

app = create_app(Services(settings=from_env(), models=MODELS, store=STORE))
