"""Fixtures: live servers, and the clients that `make clients` installs."""

import json
import os
import time

import pytest

from tests.clients import installed
from tests.clients.pages import read_program, read_setting
from tests.live import scripted, serving

PROVIDER = "[model_providers.interlock]"
TOKEN = "s3cret"  # noqa: S105 - for these tests alone


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    db = tmp_path_factory.mktemp("clients") / "responses.duckdb"
    arguments, env = scripted(str(db))
    with serving(*arguments, "tests.clients.app:app", **env) as server:
        yield server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """Serve the models of `tests.live_app` to who has a token; each takes one request, and has one other wait."""
    arguments, env = scripted(str(tmp_path_factory.mktemp("guarded") / "responses.duckdb"))
    with serving(*arguments, **env, INTERLOCK_TOKEN=f"anna={TOKEN}", MLX_MAX_QUEUE_DEPTH_PER_MODEL="1") as server:
        server.headers = {"Authorization": f"Bearer {TOKEN}"}
        server.ask_until(200, "GET", "/health")
        yield server


@pytest.fixture
def late(guarded, tmp_path):
    """Have a model load that is not ready until the pipe is written to; gives what does that."""
    pipe = tmp_path / "late"
    os.mkfifo(pipe)
    assert guarded.ask("PUT", "/v1/models/late", {"source": str(pipe)})[0] == 202

    def end():
        if pipe.exists():
            pipe.write_bytes(b"")
            pipe.unlink()
            await_model(guarded, "late", state="ready")

    yield end
    end()
    guarded.ask("DELETE", "/v1/models/late")


@pytest.fixture
def codex(server, tmp_path):
    """Run a command line that has `codex` in it, in an empty folder."""
    node = installed.find_node()
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    home.mkdir()
    path = f"{installed.MODULES / '.bin'}:{node.parent}:{os.environ['PATH']}"

    def run(command, code=0, model="qwen", url=server.url, settings=(), **env):
        config = read_program("codex.md", "toml", url).replace('"qwen"', json.dumps(model))
        more = "\n".join(read_setting("codex.md", name) for name in settings)
        (home / "config.toml").write_text(config.replace(f"{PROVIDER}\n", f"{PROVIDER}\n{more}\n"))
        env = {"PATH": path, "HOME": str(home), "CODEX_HOME": str(home), "TMPDIR": str(tmp_path), **env}
        return installed.run("bash", "-c", command, cwd=work, code=code, **env)

    run.work = work
    return run


def await_model(server, name, **wanted):
    """Wait until the health of a model is as wanted."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        condition = server.ask("GET", f"/v1/models/{name}")[1]
        if wanted.items() <= condition.items():
            return
    raise AssertionError(condition)
