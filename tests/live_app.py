"""The app that live tests put behind a real gunicorn: a model for each scenario, all scripted."""

import os

from engine.pieces import Text
from engine.scripted import Pause, Script, ScriptedEngine
from handlers.app import create_app
from handlers.models import Binding, Slots
from handlers.services import Services
from handlers.settings import Settings
from storage.store import open_store
from tests.doubles import NOW
from tests.sequences.test_text import SCENARIOS


def _scripted(name: str, script: Script) -> Binding:
    return Binding(name, ScriptedEngine(script), NOW, Slots())


app = create_app(
    Services(
        settings=Settings(),
        models={
            **{name: _scripted(name, script) for name, script in SCENARIOS.items()},
            "held": _scripted("held", [Text("The"), Pause()]),
        },
        store=open_store(os.environ["INTERLOCK_DB"], patience=20),
    )
)
