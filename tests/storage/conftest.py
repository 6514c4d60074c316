import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from handlers.writes import Writes
from tests.storage.scripted import HARD, TTL, FakeTime, Model, Script

ROOT = Path(__file__).parents[2]


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


@pytest.fixture
def time():
    return FakeTime()


@pytest.fixture
def make(time):
    return partial(Writes, hard_timeout=HARD, marker_ttl=TTL, clock=time.clock, call_later=time.call_later)


@pytest.fixture
def writes(make):
    return make()


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def model():
    return Model()
