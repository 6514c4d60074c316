"""The product's gunicorn settings, without the check of the real database and model."""

from handlers.gunicorn_conf import *  # noqa: F403

wsgi_app = "tests.live_app:app"
on_starting = None
del on_starting
