"""How gunicorn runs Interlock: one asgi worker, on loopback unless there are tokens, checked before it starts."""

import gc
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from handlers import logs
from handlers.loopback import is_loopback
from handlers.settings import SettingsError, from_env

wsgi_app = "handlers.asgi:app"
worker_class = "asgi"
workers = 1
asgi_lifespan = "on"
try:
    settings = from_env()
except SettingsError as error:
    sys.exit(f"interlock: {error}")
bind = f"[{settings.host}]:{settings.port}" if ":" in settings.host else f"{settings.host}:{settings.port}"
if settings.log == "json":
    logger_class = logs.JsonLogger
# a client that leaves is noticed at once by handlers.watch; this is the net below it
asgi_disconnect_grace_period = 1
graceful_timeout = 10
DRAIN_SECONDS = 7  # leaves the rest of graceful_timeout for the last words and the writes
keepalive = 75
control_socket_disable = True


def on_starting(server: Any) -> None:
    """Refuse what cannot work, then check the database and the model in a process of its own.

    MLX and DuckDB start threads, which must not be there when the worker is forked.
    """
    if fault := _fault(server.cfg) or _taken(server.cfg):
        sys.exit(f"interlock: {fault}")
    checked = subprocess.run([sys.executable, "-m", "handlers.cli", "prepare"], check=False)
    if checked.returncode:
        sys.exit(checked.returncode)


def nworkers_changed(server: Any, new: int, _old: int | None) -> None:
    """Stay at one worker when a signal asks for more."""
    if new > 1:
        server.log.warning("interlock: the models and the database live in one worker, so there is no second one")
        server.num_workers = 1


def post_fork(server: Any, _worker: Any) -> None:
    """Set up the log, and let the app know the port it is really served on."""
    logs.set_up(settings.log)
    address = server.LISTENERS[0].getsockname()
    if isinstance(address, tuple):
        os.environ["INTERLOCK_PORT"] = str(address[1])


def post_worker_init(worker: Any) -> None:
    """End open streams with their own terminal event when the server stops: late on SIGTERM, at once on Ctrl-C.

    Gunicorn's own way waits for connections that are merely kept alive, then kills; on Ctrl-C it closes nothing.
    """
    # what was imported stays: to walk it again and again took a tenth of the time of a request
    gc.collect()
    gc.freeze()
    stops: set[Any] = set()

    def stop(seconds: float) -> None:
        worker.asgi.begin_drain(seconds)
        if not stops:
            for server in worker.servers:
                server.close()
            stops.add(worker.loop.create_task(_stop(worker)))

    worker.loop.add_signal_handler(signal.SIGTERM, stop, DRAIN_SECONDS)
    worker.loop.add_signal_handler(signal.SIGINT, stop, 0)
    worker.loop.add_signal_handler(signal.SIGQUIT, stop, 0)


async def _stop(worker: Any) -> None:
    try:
        await worker.asgi.close()
    finally:
        worker.handle_quit_signal()


def _taken(cfg: Any) -> str | None:
    faults = (_unbindable(address) for address in cfg.address if isinstance(address, tuple))
    return next(filter(None, faults), None)


def _unbindable(address: tuple[str, int]) -> str | None:
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return (
                f"{address[0]}:{address[1]} cannot be used ({error.strerror}); choose another address with "
                "--host and --port, or INTERLOCK_HOST and INTERLOCK_PORT, or stop the server that has it."
            )
    return None


def _fault(cfg: Any) -> str | None:
    if cfg.workers != 1:
        return (
            f"{cfg.workers} workers were asked for; the models and the database live in one worker, "
            "so leave out --workers."
        )
    if cfg.worker_class_str != "asgi":
        return f"the worker class must be asgi, not {cfg.worker_class_str}; leave out --worker-class."
    if cfg.preload_app:
        return "models cannot be loaded before the fork; leave out --preload."
    outside = [address[0] for address in cfg.address if isinstance(address, tuple) and not is_loopback(address[0])]
    return None if settings.tokens or not outside else (
        f"{outside[0]} is not a loopback address, where a server without tokens would answer anyone; "
        "set INTERLOCK_TOKEN, or bind to 127.0.0.1."
    )  # fmt: skip
