"""The app of the console's tests: models that answer, fail, hang, or whose rows are slow to be written."""

import asyncio
import os

from engine.errors import DecodeError
from engine.pieces import CacheUse, Text
from engine.scripted import Pause, ScriptedEngine, stop, think
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import from_env
from handlers.writes import Writes
from storage.opening import open_database
from storage.store import DuckStore
from tests.console.names import HOSTILE
from tests.doubles import say

ANSWER = (
    think("Hm.") + say("Paris", " it", " is", ".")[:-1] + stop(prompt_tokens=4, completion_tokens=5, cached_tokens=3)
)
SCRIPTS = {
    "plain": ANSWER,
    "failing": [Text("The"), DecodeError("out of memory")],
    "held": [Text("The"), Pause()],
    "stepped": [Text("The"), Pause()],
    "counted": ANSWER,
    "slow-disk": ANSWER,
    HOSTILE: ANSWER,
}


class SlowStore(DuckStore):
    """A store that never ends to write the rows of one model."""

    async def put(self, row):
        if row.model == "slow-disk":
            await asyncio.Event().wait()
        await super().put(row)


MODELS = Registry(lambda _: ScriptedEngine(ANSWER), queue_limit=2)
for name, script in SCRIPTS.items():
    engine = ScriptedEngine(script)
    engine.cache = CacheUse(entries=3, bytes=180 << 20, limit=512 << 20) if name == "plain" else None
    MODELS.register(name, engine)

settings = from_env()
app = create_app(
    Services(
        settings=settings,
        models=MODELS,
        store=SlowStore(open_database(os.environ["INTERLOCK_DB"], patience=20)),
        writes=Writes(hard_timeout=settings.persist_hard_ms / 1000),
    )
)
