"""Fixtures: a live server with a sensible model, and the clients that `make clients` installs."""

import json
import os

import pytest

from tests.clients import installed
from tests.clients.pages import read_program
from tests.live import scripted, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    db = tmp_path_factory.mktemp("clients") / "responses.duckdb"
    arguments, env = scripted(str(db))
    with serving(*arguments, "tests.clients.app:app", **env) as server:
        yield server


@pytest.fixture
def codex(server, tmp_path):
    """Run a command line that has `codex` in it, in an empty folder."""
    node = installed.find_node()
    config, home = read_program("codex.md", "toml", server.url), tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    home.mkdir()
    path = f"{installed.MODULES / '.bin'}:{node.parent}:{os.environ['PATH']}"

    def run(command, code=0, model="qwen"):
        (home / "config.toml").write_text(config.replace('"qwen"', json.dumps(model)))
        env = {"PATH": path, "HOME": str(home), "CODEX_HOME": str(home), "TMPDIR": str(tmp_path)}
        return installed.run("bash", "-c", command, cwd=work, code=code, **env)

    run.work = work
    return run
