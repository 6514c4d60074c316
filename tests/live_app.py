"""The app that live tests put behind a real gunicorn: a model for each scenario, all scripted."""

import os

from engine.pieces import Text
from engine.scripted import Pause, ScriptedEngine
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import from_env
from storage.store import open_store
from tests.sequences.test_text import SCENARIOS

MODELS = Registry(lambda _: ScriptedEngine(SCENARIOS["plain_text"]))
for name, script in {**SCENARIOS, "held": [Text("The"), Pause()]}.items():
    MODELS.register(name, ScriptedEngine(script))


app = create_app(
    Services(
        settings=from_env({"INTERLOCK_TOKEN": os.environ.get("INTERLOCK_TOKEN", "")}),
        models=MODELS,
        store=open_store(os.environ["INTERLOCK_DB"], patience=20),
    )
)
