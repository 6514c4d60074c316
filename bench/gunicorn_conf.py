"""The product's gunicorn settings, without the check of the real database and model."""

from handlers.gunicorn_conf import *  # noqa: F403

asgi_loop = "asyncio"  # what an installation has; uvloop would be taken if something else had brought it along
del on_starting  # noqa: F821 - of the product's settings
