"""Lets plain `gunicorn`, run in this folder, serve Interlock."""

from handlers.gunicorn_conf import *  # noqa: F403 - gunicorn reads its settings from this module's names
