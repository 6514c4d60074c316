"""Fixtures: a live server with a scripted model that is sensible, and one with the real model."""

import pytest

from tests.acceptance.asking import Asked
from tests.live import scripted, serving

REAL = ("handlers.cli", "serve", "--port", "0", "--db", ":memory:")


@pytest.fixture(scope="module")
def sensible(tmp_path_factory):
    arguments, env = scripted(str(tmp_path_factory.mktemp("acceptance") / "responses.duckdb"))
    with serving(*arguments, "tests.clients.app:app", **env) as server:
        yield Asked(server, "qwen")


@pytest.fixture(scope="module")
def real():
    with serving(*REAL) as server:
        server.ask_until(200, "GET", "/health")
        yield Asked(server, "smollm2-135m-instruct")


@pytest.fixture(params=["sensible", pytest.param("real", marks=[pytest.mark.real, pytest.mark.timeout(600)])])
def asked(request):
    return request.getfixturevalue(request.param)
