"""GET /traces/{id}: how an exchange went, without a word of its content."""

import asyncio

import pytest

from engine.pieces import Text
from engine.scripted import Pause
from handlers.app import create_app
from handlers.settings import Settings
from storage.errors import ReadError
from tests.asgi import running
from tests.doubles import NOW, say, to_services


async def kept(client, services, known_as):
    """Ask once the writer has written what was recorded."""
    await asyncio.gather(*services.running)
    await services.store.sweep(0)
    return await client.request("GET", f"/traces/{known_as}")


async def test_a_trace_is_found_by_its_exchange_and_by_its_response(client, services, engine):
    engine.script = say("A secret.")
    reply = await client.post(input="Another secret.")

    by_exchange = await kept(client, services, reply.headers["X-Interlock-Exchange"])
    by_response = await kept(client, services, reply.json["id"])

    assert by_exchange.json == by_response.json
    (trace,) = by_exchange.json["data"]
    assert (trace["id"], trace["response_id"], trace["model"]) == ("ex_1", "resp_1", "scripted")
    assert (trace["state"], trace["event"], trace["status"], trace["ended_at"]) == ("DONE", "row_written", None, NOW)
    first = trace["moves"][0]
    assert first.keys() == {"event", "from", "to", "ms"}
    assert (first["event"], first["from"], first["to"]) == ("route_found", "ROUTING", "VALIDATING")
    assert [move["to"] for move in trace["moves"]][-2:] == ["PERSISTING", "DONE"]
    assert "secret" not in by_exchange.text


async def test_a_refusal_has_its_status(client, services):
    reply = await client.post(input=[])

    (trace,) = (await kept(client, services, reply.headers["X-Interlock-Exchange"])).json["data"]

    assert (trace["state"], trace["event"], trace["status"]) == ("REFUSED", "input_empty", 400)


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_exchange_under_way_is_seen_where_it_is(engine, store, keeps):
    pause = Pause()
    engine.script = [Text("The"), pause]
    async with running(create_app(to_services(engine, store if keeps else None))) as client:
        decoding = client.start(input="Hello", stream=True)
        await pause.reached.wait()

        (trace,) = (await client.request("GET", "/traces/resp_1")).json["data"]
        decoding.leave()
        await decoding.reply()

    assert (trace["state"], trace["ended_at"], trace["event"]) == ("DISPATCHING", None, "slot_granted")


async def test_a_store_that_cannot_read_is_the_servers_fault(client, store):
    async def break_off(_):
        raise ReadError

    store.traces = break_off

    assert (await client.request("GET", "/traces/ex_1")).status_code == 500


async def test_a_trace_wants_a_token_like_the_rest(engine, store):
    async with running(create_app(to_services(engine, store, Settings(tokens={"default": "x"})))) as client:
        assert (await client.request("GET", "/traces/ex_1")).status_code == 401
