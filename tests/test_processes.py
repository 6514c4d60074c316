"""The server as a process: how it starts, refuses to start, survives and ends."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from storage.rows import TraceQuery
from storage.store import open_store
from tests.doubles import NOW
from tests.live import ROOT, launched, scripted, serving

GUNICORN = ("gunicorn", "-c", "gunicorn.conf.py", "-b", "127.0.0.1:0")


@pytest.fixture
def db(tmp_path) -> str:
    return str(tmp_path / "responses.duckdb")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-w", "2"), "2 workers were asked for"),
        (("-k", "sync"), "the worker class must be asgi, not sync"),
        (("--preload",), "models cannot be loaded before the fork"),
        (("-b", "0.0.0.0:0"), "0.0.0.0 is not a loopback address"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(db, arguments, sentence):
    with launched(*GUNICORN, *arguments, INTERLOCK_DB=db) as server:
        assert server.ended() == 1

    assert server.log[-1].startswith("interlock: ")
    assert sentence in server.log[-1]


def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "handlers.cli", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", [GUNICORN, ("handlers.cli", "serve", "--port", "0")])
def test_a_file_that_is_no_database_ends_the_start_and_is_left_alone(tmp_path, command):
    file = tmp_path / "notes.txt"
    file.write_text("Not a database.\n" * 1000)
    before = file.read_bytes()

    with launched(*command, INTERLOCK_DB=str(file)) as server:
        assert server.ended() == 1

    said = [line for line in server.log if line.startswith("interlock: ")]
    assert len(said) == 1
    assert str(file) in said[0]
    assert "Traceback" not in "".join(server.log)
    assert file.read_bytes() == before


def test_a_database_that_another_server_holds_ends_the_start(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as holder:
        holder.ask_until(200, "GET", "/health")

        with launched("handlers.cli", "serve", "--port", "0", "--db", db) as server:
            assert server.ended() == 1

    assert [line for line in server.log if line.startswith("interlock: ") and "lock" in line]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "--model", "nameless"), "A model is given as NAME=PATH_OR_HUB_ID"),
        (("serve", "--model", "a=b", "--model", "a=c"), "Two models are named 'a'"),
        (("serve", "--model", "a\x07b=c"), "must be printable"),
        (("serve", "--db", "x", "--no-store"), "--db and --no-store exclude each other"),
        (("serve", "--token", ""), "--token is empty"),
        (("serve", "--token", "a=b", "--token", "a=c"), "Two tokens are named 'a'"),
        (("serve", "--host", "0.0.0.0", "--no-store"), "0.0.0.0 is not a loopback address"),  # noqa: S104
        (("serve", "--host", "a b"), "INTERLOCK_HOST takes an address"),
        (("serve", "--port", "many"), "'many' is not a valid integer"),
        (("serve", "--port", "0", "--no-store", "--model", "a=/nowhere/at/all"), "'/nowhere/at/all' does not exist"),
        (("serve", "--port", "0", "--no-store", "--model", "a=tests"), "'tests' is not a model folder"),
    ],
)
def test_a_wrong_option_is_explained(arguments, sentence):
    ended = run(*arguments)

    assert ended.returncode in {1, 2}
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["INTERLOCK_PORT", "MLX_MAX_QUEUE_DEPTH_PER_MODEL", "INTERLOCK_MAX_BODY_BYTES"])
def test_a_wrong_variable_is_named(name):
    ended = run("prepare", **{name: "-1"})

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"interlock: {name} takes a whole number")


def test_a_word_that_is_none_of_a_variables_is_named_with_those_that_are():
    ended = run("prepare", INTERLOCK_DURABLE="yes")

    assert ended.returncode == 1
    assert ended.stderr == "interlock: INTERLOCK_DURABLE takes 0 or 1 or false or true, not 'yes'.\n"


def test_a_chain_is_found_again_after_a_restart(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as server:
        _, first = server.ask("POST", "/v1/responses", {"model": "plain_text", "input": "Hello"})

    with serving(*arguments, **env) as server:
        status, second = server.ask(
            "POST", "/v1/responses", {"model": "plain_text", "input": "And?", "previous_response_id": first["id"]}
        )

    assert (status, second["previous_response_id"]) == (200, first["id"])


def test_a_killed_worker_is_replaced_and_has_lost_nothing(db):
    arguments, env = scripted(db)
    body = {"model": "plain_text", "input": "Hello"}
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        for _ in range(5):
            _, reply = server.ask("POST", "/v1/responses", body)
            body["previous_response_id"] = reply["id"]
        # the row of the last reply is written after it was sent; a sixth turn waits for it
        server.ask("POST", "/v1/responses", body)

        os.kill(server.worker_pid(), signal.SIGKILL)

        again = server.ask_until(200, "POST", "/v1/responses", body)

    assert again["previous_response_id"] == body["previous_response_id"]


def test_a_reload_hands_the_database_to_the_new_worker(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as server:
        first = server.ask_until(200, "POST", "/v1/responses", {"model": "plain_text", "input": "Hello"})
        old = server.worker_pid()

        server.process.send_signal(signal.SIGHUP)
        server.await_exit(old)

        body = {"model": "plain_text", "input": "And?", "previous_response_id": first["id"]}
        assert server.ask_until(200, "POST", "/v1/responses", body)["previous_response_id"] == first["id"]
        assert server.worker_pid() != old


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_makes_room_for_the_next(db, stream):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        leaving = server.open_stream(model="held", input="Hello", stream=stream)
        waiting = server.open_stream(model="held", input="Hello", stream=True)

        leaving.close()

        assert waiting.recv(15) == b"HTTP/1.1 200 OK"
        waiting.close()

    assert "abandoned by client_gone" in "".join(server.log)


def test_a_client_that_closes_its_sending_side_has_left_and_is_written_no_end(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        leaving = server.open_stream(model="held", input="Hello", stream=True)
        seen = leaving.recv(65536)

        leaving.shutdown(socket.SHUT_WR)

        while chunk := leaving.recv(65536):
            seen += chunk
        leaving.close()

    assert b"event: response.created" in seen
    assert b"event: response.failed" not in seen
    assert "abandoned by client_gone" in "".join(server.log)


def test_an_interrupt_ends_open_streams_with_their_own_event(db):
    arguments, env = scripted(db)
    with launched(*arguments, **env) as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        connection = server.open_stream(model="held", input="Hello", stream=True)
        seen = connection.recv(65536)

        server.process.send_signal(signal.SIGINT)

        while chunk := connection.recv(65536):
            seen += chunk
        connection.close()
        assert server.ended() == 0
    assert seen.index(b"event: response.failed") < seen.index(b"data: [DONE]")
    assert "server_stopping" in "".join(server.log)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_open_streams_and_writes_what_was_answered(db, stop):
    arguments, env = scripted(db)
    with launched(*arguments, **env, SLOW_DISK="1") as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        connection = server.open_stream(model="held", input="Hello", stream=True)
        seen = connection.recv(65536)
        idle = socket.create_connection(("127.0.0.1", urlsplit(server.url).port))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(15) == b"HTTP/1.1 200 OK"
        answered = server.ask("POST", "/v1/responses", {"model": "plain_text", "input": "Hello"})[1]

        server.process.send_signal(stop)

        while chunk := connection.recv(65536):
            seen += chunk
        last = server.ask_or_refused("POST", "/v1/responses", {"model": "plain_text", "input": "Hello"})
        connection.close()
        assert server.ended() == 0
        idle.close()
    assert "Worker exiting" in "".join(server.log)  # it was not killed
    store = open_store(db)
    chain = asyncio.run(store.chain(answered["id"], NOW))
    traces = asyncio.run(store.traces(TraceQuery(response_id=answered["id"])))
    store.close_now()

    assert seen.index(b"event: response.failed") < seen.index(b"data: [DONE]")
    assert last in {503, None}
    assert [row.id for row in chain.rows] == [answered["id"]]
    assert [trace.state for trace in traces] == ["DONE"]


def test_a_port_that_is_taken_is_told_at_once(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as holder:
        port = holder.url.rpartition(":")[2]

        with launched("handlers.cli", "serve", "--port", port, "--no-store") as server:
            assert server.ended() == 1

    assert f"127.0.0.1:{port} cannot be used" in server.log[-1]


def test_a_server_without_any_model_stops(db):
    with launched("handlers.cli", "serve", "--port", "0", "--no-store", "--model", "x=nobody/nothing") as server:
        assert server.ended() != 0

    assert "no model could be loaded" in "".join(server.log)


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_a_body_too_large_is_a_413(db, headers):
    arguments, env = scripted(db)
    body = b" " * (11 * 1024 * 1024)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")

        status, reply = server.ask("POST", "/v1/responses", chunked if headers else body, **headers)

    assert status == 413
    assert reply["error"]["type"] == "invalid_request_error"


def test_rows_written_before_a_kill_of_everything_are_found(db):
    arguments, env = scripted(db)
    with launched(*arguments, **env) as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        first = server.ask("POST", "/v1/responses", {"model": "plain_text", "input": "Hello"})[1]
        body = {"model": "plain_text", "input": "And?", "previous_response_id": first["id"]}
        server.ask("POST", "/v1/responses", body)
        worker = server.worker_pid()
        server.process.kill()
        os.kill(worker, signal.SIGKILL)

    store = open_store(db, patience=20)
    chain = asyncio.run(store.chain(first["id"], NOW))
    store.close_now()

    assert [row.id for row in chain.rows] == [first["id"]]


def test_a_kill_fails_the_background_response_under_way_and_no_other(db):
    arguments, env = scripted(db)
    body = {"input": "Hello", "background": True, "stream": True}
    with launched(*arguments, **env) as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        ended = read_until(server.open_stream(**body, model="plain_text"), b"data: [DONE]")
        under_way = read_until(server.open_stream(**body, model="held"), b"response.output_text.delta")
        worker = server.worker_pid()
        server.process.kill()
        os.kill(worker, signal.SIGKILL)

    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        _, failed = server.ask("GET", f"/v1/responses/{to_id(under_way)}")
        replays = [server.read(f"/v1/responses/{to_id(seen)}?stream=true") for seen in (ended, under_way)]

    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert failed["error"]["message"] == "The server ended while it made this response; ask again."
    assert replays[0] in ended
    assert b"response.output_text.delta" in replays[1]
    assert replays[1].index(b"event: response.failed") < replays[1].index(b"data: [DONE]")


def read_until(connection, end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        seen += connection.recv(65536)
    connection.close()
    return re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", seen)


def to_id(seen: bytes) -> str:
    return re.search(rb'"id":"(resp_[0-9a-f]+)"', seen)[1].decode()


@pytest.mark.parametrize("stream", [False, True])
def test_a_row_that_is_written_first_outlives_a_kill_right_after_the_terminal_event(db, stream):
    arguments, env = scripted(db)
    with launched(*arguments, **env, INTERLOCK_DURABLE="1", SLOW_DISK="0.5") as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        worker = server.worker_pid()
        connection = server.open_stream(model="plain_text", input="Hello", stream=stream)
        seen = b""
        while b'"status":"completed","incomplete_details"' not in seen:
            seen += connection.recv(65536)
        os.kill(worker, signal.SIGKILL)
        server.process.kill()
        connection.close()

    response_id = to_id(seen)
    store = open_store(db, patience=20)
    chain = asyncio.run(store.chain(response_id, NOW))
    store.close_now()

    assert [row.id for row in chain.rows] == [response_id]
