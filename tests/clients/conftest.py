"""Fixtures: a live server with a sensible model, and the clients that `make clients` installs."""

import pytest

from tests.live import scripted, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    db = tmp_path_factory.mktemp("clients") / "responses.duckdb"
    arguments, env = scripted(str(db))
    with serving(*arguments, "tests.clients.app:app", **env) as server:
        yield server
