"""Starts a real server on a free loopback port, and stops it."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.openapi.wire import check_reply

ROOT = Path(__file__).parent.parent
LISTENING = re.compile(r"Listening at: (http://127\.0\.0\.1:\d+)")
WORKER = re.compile(r"Booting worker with pid: (\d+)")
PATIENCE = 60  # seconds until a server that does not answer is given up


class Server:
    """A running server: its URL, and what it has logged so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.log: list[str] = []
        self.url = ""
        self.headers: dict[str, str] = {}  # of each request
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def started(self) -> str:
        """Wait until it listens; gives the URL."""
        self._listening.wait(PATIENCE)
        assert self.url, "".join(self.log)
        return self.url

    def worker_pid(self) -> int:
        """Give the process id of the newest worker."""
        return int(WORKER.findall("".join(self.log))[-1])

    def await_exit(self, worker: int) -> None:
        """Wait until a worker process is gone."""
        until = time.monotonic() + PATIENCE
        while _is_alive(worker):
            assert time.monotonic() < until, "".join(self.log)
            time.sleep(0.1)

    def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Make one request and read its JSON."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json", **self.headers, **headers})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        if path.startswith("/v1/responses"):
            check_reply(reply.status, reply.headers["Content-Type"], text)
        return reply.status, json.loads(text)

    def ask_or_refused(self, method: str, path: str, body: Any = None) -> int | None:
        """Give the status of a request, or None if nobody takes it."""
        try:
            return self.ask(method, path, body)[0]
        except (OSError, HTTPException):
            return None

    def read(self, path: str) -> bytes:
        """Read all of a stream of the Responses API."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        connection.request("GET", path, headers=self.headers)
        reply = connection.getresponse()
        seen = reply.read()
        connection.close()
        check_reply(reply.status, reply.headers["Content-Type"], seen.decode())
        return seen

    def ask_until(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Ask again until the status is `status`, as a client does while a server starts."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if (answer := self.ask(method, path, body))[0] == status:
                    return answer[1]
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("".join(self.log))

    def await_line(self, text: str, since: int = 0) -> None:
        """Wait until the log has a line with `text` in it, of those from `since` on."""
        until = time.monotonic() + PATIENCE
        while not any(text in line for line in self.log[since:]):
            assert time.monotonic() < until, "".join(self.log)
            time.sleep(0.05)

    def open_stream(self, **body: Any) -> socket.socket:
        """Send a request and leave its reply unread."""
        data = json.dumps(body).encode()
        connection = socket.create_connection(("127.0.0.1", urlsplit(self.url).port), timeout=PATIENCE)
        headers = {"Host": "localhost", "Content-Length": len(data), **self.headers}
        lines = ["POST /v1/responses HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        connection.sendall("\r\n".join(lines).encode() + data)
        return connection

    def _read(self) -> None:
        for line in self.process.stderr or []:
            self.log.append(line)
            if found := LISTENING.search(line):
                self.url = found[1]
                self._listening.set()
        self._listening.set()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def launched(*arguments: str, **env: str) -> Iterator[Server]:
    """Run `python -m ARGUMENTS`; what still runs at the end is killed."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        server = Server(process)
        try:
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            server.ended()


@contextmanager
def serving(*arguments: str, **env: str) -> Iterator[Server]:
    """Run a server until the end of the block, then stop it with SIGTERM; its exit code must be 0."""
    with launched(*arguments, **env) as server:
        server.started()
        yield server
        server.process.terminate()
        assert server.ended() == 0, "".join(server.log)


def scripted(db: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Give the arguments that serve `tests.live_app`."""
    return ("gunicorn", "-c", "tests/live_conf.py", "-b", "127.0.0.1:0"), {"INTERLOCK_DB": db}
