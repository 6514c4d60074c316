import subprocess
import sys
from pathlib import Path

import pytest

from storage.store import open_store

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def store():
    store = open_store(":memory:")
    yield store
    await store.close()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "responses.duckdb"


@pytest.fixture
def python():
    """Start another Python that runs `code` with `arguments`; it is killed at the end."""
    started = []

    def start(code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
