"""What /health tells, and whom."""

import asyncio
from importlib.metadata import version

import pytest

from handlers import health
from handlers.app import create_app
from handlers.settings import Settings
from storage.errors import WriteError
from tests.asgi import running
from tests.doubles import MODEL, NOW, say, to_services

TOKEN = {"authorization": "Bearer s3cret"}


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_with_tokens_a_stranger_hears_one_word(engine, store, path):
    async with running(create_app(to_services(engine, store, Settings(tokens={"default": "s3cret"})))) as client:
        short = await client.request("GET", path)
        wrong = await client.request("GET", path, authorization="Bearer guess")
        full = await client.request("GET", path, **TOKEN)

    assert (short.status_code, short.json) == (200, {"status": "ok"})
    assert wrong.status_code == 401
    assert full.json["status"] == "ok"
    assert full.json.keys() == {"status", "version", "uptime_seconds", "models", "writes", "database_lost"}


async def test_only_the_health_is_told_without_a_token_and_only_by_its_path(engine, store):
    async with running(create_app(to_services(engine, store, Settings(tokens={"default": "s3cret"})))) as client:
        for path in ("/health/", "/healthy", "/v1/health/x", "/v1/models"):
            assert (await client.request("GET", path)).status_code == 401


async def test_it_gives_the_last_write_and_how_long_ago_it_landed(client, services, engine):
    engine.script = say("Yes.")
    before = await client.request("GET", "/health")
    reply = await client.post(input="Hello")
    assert await services.writes.settled(reply.json["id"], 10)
    services.clock = lambda: NOW + 90

    after = await client.request("GET", "/health")

    assert before.json["writes"]["last_landed"] is None
    assert after.json["writes"]["last_landed"]["seconds_ago"] == 90
    assert after.json["writes"]["last_landed"]["took_ms"] >= 0
    assert after.json["version"] == version("interlock")
    assert after.json["uptime_seconds"] >= 0


async def test_it_counts_the_writes_that_are_late_and_stuck(client, services):
    for name in ("late", "stuck", "under way"):
        services.writes.reserve(name, NOW + 100)
        write = services.writes.start(name, asyncio.Event().wait)
        if name != "under way":
            await write.landed(0)
        if name == "stuck":
            services.writes.trip(write)

    reply = await client.request("GET", "/health")

    assert (reply.status_code, reply.json["status"]) == (200, "degraded")
    expected = {"last_landed": None, "under_way": 3, "late": 1, "wedged": 1, "unwritten_rows": 0}
    assert reply.json["writes"] == expected


async def test_it_is_degraded_while_a_row_could_not_be_written(client, services, store, engine):
    async def fail(_):
        raise WriteError("disk full")

    store.put = fail
    engine.script = say("Yes.")
    await client.post(input="Hello")
    await asyncio.gather(*services.running)

    reply = await client.request("GET", "/health")

    assert (reply.json["status"], reply.json["writes"]["unwritten_rows"]) == ("degraded", 1)


async def test_it_tells_of_the_engine_and_does_not_ask_it(client, engine, monkeypatch):
    engine.step_seconds = 2.25

    async def refuse(*_):
        raise AssertionError("it was asked")

    monkeypatch.setattr(engine, "tokenize", refuse)
    reply = await client.request("GET", "/health")

    condition = reply.json["models"][MODEL]
    assert condition["engine"] == {"healthy": True, "step_seconds": 2.25}
    assert condition["state"] == "ready"


async def test_a_server_that_stops_takes_nothing_and_says_so(client):
    client.app.begin_drain(60)

    reply = await client.request("GET", "/health")

    assert (reply.status_code, reply.json["status"]) == (503, "stopping")
    assert reply.headers["Retry-After"] == health.RETRY_AFTER["stopping"]


async def test_a_look_at_the_head_is_enough(client):
    reply = await client.request("HEAD", "/health")

    assert (reply.status_code, reply.text) == (200, "")
