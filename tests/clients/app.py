"""The app that client tests put behind a real gunicorn: one model, a sensible one."""

import os

from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import from_env
from storage.store import open_store
from tests.clients.sensible import SensibleEngine

MODELS = Registry(lambda _: SensibleEngine())
MODELS.register("qwen", SensibleEngine())

app = create_app(
    Services(settings=from_env(os.environ), models=MODELS, store=open_store(os.environ["INTERLOCK_DB"], patience=20))
)
