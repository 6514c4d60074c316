"""The log as JSON: one object a line, with the facts of each request."""

import asyncio
import io
import json
import logging

import pytest

from engine.errors import DecodeError
from handlers.logs import JsonFormatter
from tests.doubles import say
from tests.live import scripted, serving


@pytest.fixture
def lines():
    """Give the log of the test, read line by line."""
    stream = io.StringIO()
    handler, log = logging.StreamHandler(stream), logging.getLogger("interlock")
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    level = log.level
    log.setLevel("INFO")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.removeHandler(handler)
    log.setLevel(level)


def of_exchanges(lines):
    return [line for line in lines() if line["logger"] == "interlock.exchange"]


async def test_the_line_of_a_request_has_its_facts_as_fields(client, services, engine, lines):
    engine.script = say("Yes.")

    await client.post(input="A secret.")
    await asyncio.gather(*services.running)
    await client.post(input=[{"role": "narrator", "content": "A secret."}])
    await client.request("GET", "/nowhere\nFAKE LINE")

    done, refused, unrouted = of_exchanges(lines)
    assert done["level"] == "INFO"
    assert done["ts"].endswith("+00:00")
    facts = ("exchange", "method", "path", "model", "response_id", "state", "event", "status")
    assert [done[name] for name in facts] == [
        "ex_1", "POST", "/v1/responses", "scripted", "resp_1", "done", "row_written", None,
    ]  # fmt: skip
    assert {"routing", "queued", "dispatching", "persisting"} <= done["ms"].keys()
    assert (refused["event"], refused["status"], refused["param"]) == ("field_invalid", 400, "input[0].role")
    assert unrouted["path"] == "/nowhere\nFAKE LINE"
    assert "secret" not in str(lines())


async def test_a_traceback_is_a_field_of_its_line(client, engine, lines):
    engine.script = [DecodeError("broken"), ZeroDivisionError()]
    engine.scripts.append([ZeroDivisionError()])

    await client.post(input="Hello")

    crashed = next(line for line in lines() if "exception" in line)
    assert crashed["exception"].endswith("ZeroDivisionError")
    assert crashed["level"] == "ERROR"


def test_every_line_of_a_server_is_an_object(tmp_path):
    arguments, env = scripted(str(tmp_path / "responses.duckdb"))
    with serving(*arguments, **env, INTERLOCK_LOG="json") as server:
        server.ask_until(200, "GET", "/health")
        server.ask("GET", "/nowhere")

    read = [json.loads(line) for line in server.log]
    assert {"gunicorn.error", "interlock.exchange"} <= {line["logger"] for line in read}
    assert [line["status"] for line in read if line["logger"] == "interlock.exchange"] == [404]
