"""Starts a real gunicorn on a free loopback port, and stops it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTENING = re.compile(r"Listening at: (http://127\.0\.0\.1:\d+)")


@contextmanager
def serving(*arguments: str, **env: str) -> Iterator[str]:
    """Run `python -m ARGUMENTS` and give the URL it listens at; ends it with SIGTERM and expects exit code 0."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
    ) as server:  # fmt: skip
        try:
            yield _url(server)
        finally:
            server.terminate()
            log = server.stderr.read() if server.stderr else ""
    assert server.returncode == 0, log


def _url(server: "subprocess.Popen[str]") -> str:
    seen = []
    for line in server.stderr or []:
        seen.append(line)
        if found := LISTENING.search(line):
            return found[1]
    raise AssertionError("".join(seen))
