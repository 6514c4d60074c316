"""Starts the servers that are compared, each a process of its own on a free loopback port."""

import http.client
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
PATIENCE = 120  # seconds until a server that does not start or stop is given up
LISTENING = re.compile(r"Listening at: (http://127\.0\.0\.1:\d+)")
WORKER = re.compile(r"Booting worker with pid: (\d+)")


class Server(NamedTuple):
    """A running server: where it listens, and the process that answers."""

    url: str
    pid: int

    def resident_mb(self) -> float:
        """Tell how much memory it has."""
        return float(_ps(self.pid, "rss")) / 1024

    def cpu_seconds(self) -> float:
        """Tell how much processor time it has used; Linux's ps would tell it in whole seconds."""
        stat = Path(f"/proc/{self.pid}/stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        parts = _ps(self.pid, "time").replace("-", ":").split(":")
        return sum(float(part) * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86400), strict=False))


def _ps(pid: int, column: str) -> str:
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def gunicorn(app: str, **env: str) -> Iterator[Server]:
    """Serve an ASGI app as the product is served."""
    with running("gunicorn", "-c", "bench/gunicorn_conf.py", "-b", "127.0.0.1:0", app, **env) as log:
        yield answering("/health", log)


@contextmanager
def interlock(**env: str) -> Iterator[Server]:
    """Serve the starter model, as `make serve` does."""
    with running("handlers.cli", "serve", "--port", "0", "--db", ":memory:", **env) as log:
        yield answering("/health", log)


@contextmanager
def mlx_lm_server(folder: Path) -> Iterator[Server]:
    """Serve the same model by mlx-lm's own server, with the same fast BLAS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running("bench.mlx_lm_server", "--model", str(folder), "--port", str(port)) as log:
        server = Server(f"http://127.0.0.1:{port}", 0)
        _await(lambda: status(server.url, "/health") == http.HTTPStatus.OK, log)
        yield server


def answering(path: str, log: Path) -> Server:
    """Wait until a gunicorn that logs to `log` has a worker which answers."""
    _await(lambda: bool(WORKER.search(log.read_text())), log)
    text = log.read_text()
    server = Server(LISTENING.findall(text)[0], int(WORKER.findall(text)[0]))
    _await(lambda: status(server.url, path) in {http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND}, log)
    return server


def _await(is_so: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(log.read_text())
        time.sleep(0.1)


def status(url: str, path: str) -> int:
    """Give the status of a GET; 0 if nothing answers."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@contextmanager
def running(*arguments: str, **env: str) -> Iterator[Path]:
    """Run `python -m ARGUMENTS` until the end of the block; gives the file it logs to, as one in service does."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", *arguments]
        with (
            log.open("w") as out,
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=out, stderr=out) as process,
        ):
            try:
                yield log
            finally:
                process.terminate()
                process.wait(PATIENCE)
