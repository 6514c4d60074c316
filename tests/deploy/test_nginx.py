"""nginx, set up as its page says, in front of a live server."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from http.client import HTTPConnection

import openai
import pytest
from websockets.sync.client import connect

from tests.live import PATIENCE, ROOT, scripted, serving

TOKEN = "CHANGE-ME"  # noqa: S105 - the page's
SETTINGS = """
{user}
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/bodies;
proxy_temp_path {folder}/replies;
{page}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    arguments, env = scripted(str(tmp_path_factory.mktemp("nginx") / "responses.duckdb"))
    variable, _, tokens = _block("sh").split()[0].partition("=")
    with serving(*arguments, **env, **{variable: tokens}) as server:
        server.headers = {"Authorization": f"Bearer {TOKEN}"}
        server.ask_until(200, "GET", "/health")
        yield server


@pytest.fixture(scope="module")
def port(server, tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("nginx"), _free_port()
    block = _block("nginx").replace("127.0.0.1:8080", server.url.removeprefix("http://"))
    block = block.replace("listen 8443", f"listen 127.0.0.1:{port}")
    settings = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    settings.write_text(SETTINGS.format(folder=folder, page=block, user=user))
    with subprocess.Popen([_find_nginx(), "-p", folder, "-c", settings]) as process:
        _await_port(port)
        yield port
        process.terminate()


@pytest.fixture
def client(port):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


def test_a_request_goes_through(client):
    assert client.responses.create(model="plain_text", input="Hello").status == "completed"


def test_each_event_arrives_while_the_model_is_at_the_next_and_leaving_is_noticed(client, server):
    with client.responses.create(model="held", input="Hello", stream=True) as stream:
        seen = next(event for event in stream if event.type == "response.output_text.delta")
        exchange = stream.response.headers["X-Interlock-Exchange"]

    assert seen.delta == "The"
    _await_line(server, rf"{exchange} .*client_gone")


def test_a_body_as_large_as_the_server_takes_goes_through(client):
    with pytest.raises(openai.BadRequestError, match="tokens") as refused:
        client.responses.create(model="plain_text", input="word " * 500_000)

    assert refused.value.code == "context_length_exceeded"


def test_without_the_token_nothing_is_served(port):
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="another", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        client.models.list()

    assert refused.value.code == "invalid_api_key"


def test_it_may_have_any_name(port):
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "models.example"}
    connection.request("GET", "/v1/models", headers=headers)

    assert connection.getresponse().status == 200
    connection.close()


def test_a_websocket_goes_through(port):
    with connect(f"ws://127.0.0.1:{port}/v1/responses", additional_headers={"Authorization": f"Bearer {TOKEN}"}) as ws:
        ws.send(json.dumps({"type": "response.create", "model": "plain_text", "input": "Hello"}))
        heard = [json.loads(ws.recv(PATIENCE))["type"] for _ in range(2)]

    assert heard == ["response.created", "response.in_progress"]


def test_models_are_not_changed_through_it(port, client):
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("DELETE", "/v1/models/plain_text", headers={"Authorization": f"Bearer {TOKEN}"})

    assert connection.getresponse().status == 403
    assert client.models.retrieve("plain_text").id == "plain_text"
    connection.close()


def _block(language):
    page = (ROOT / "docs/deploy/nginx.md").read_text()
    return re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)[1]


def _find_nginx():
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/opt/homebrew/bin")
    if found is None:
        say = "nginx is not installed"
        pytest.fail(say) if os.environ.get("CI") else pytest.skip(say)
    return found


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await_port(port):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(port)


def _await_line(server, pattern):
    until = time.monotonic() + PATIENCE
    while not re.search(pattern, "".join(server.log)):
        assert time.monotonic() < until, "".join(server.log)
        time.sleep(0.05)
