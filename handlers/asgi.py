"""The app as gunicorn loads it, in its one worker, from the settings in the environment."""

import logging
import sys

from engine.blas import load_fast_blas

log = logging.getLogger("interlock")
if advice := load_fast_blas():
    log.info(advice)

from engine.errors import EngineError  # noqa: E402 - mlx is imported below, after a fast BLAS
from handlers.app import create_app  # noqa: E402
from handlers.serving import BOOT_ERROR, to_services  # noqa: E402
from handlers.settings import SettingsError, from_env  # noqa: E402
from storage.errors import StoreError  # noqa: E402

try:
    app = create_app(to_services(from_env()))
except (SettingsError, EngineError, StoreError) as error:
    log.error("%s", error)  # noqa: TRY400 - one clear sentence
    sys.exit(BOOT_ERROR)
