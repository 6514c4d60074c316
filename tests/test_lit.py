"""The drawings over HTTP: each machine as its table has it, and the path of one exchange lit."""

from xml.etree import ElementTree as ET

import pytest

from diagrams.draw import HERE
from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause
from handlers.app import create_app
from handlers.settings import Settings
from machines.tables import TABLES
from tests.asgi import running
from tests.doubles import say, to_services
from tests.durable import calm

EDGE = ("data-event", "data-from", "data-to")


async def drawn(client, path):
    reply = await client.request("GET", path)
    assert (reply.status_code, reply.headers["Content-Type"]) == (200, "image/svg+xml")
    return reply.text


def lit(text):
    """Read which moves a drawing shows as made, and which states as reached."""
    bright = [mark for mark in ET.fromstring(text).iter() if "lit" in mark.get("class", "").split()]  # noqa: S314 our own
    moves = {
        tuple(mark.get(name) for name in EDGE) for mark in bright if mark.get("data-from") and mark.get("data-event")
    }
    return moves, {state for mark in bright if (state := mark.get("data-state"))}


async def told(client, exchange_id):
    """Ask for an exchange: its moves and states, and the drawing that should show them."""
    trace = (await client.request("GET", f"/interlock/exchanges/{exchange_id}")).json
    moves = {(move["event"], move["from"], move["to"]) for move in trace["moves"]}
    states = {state for _, left, reached in moves for state in (left, reached)}
    return trace, (moves, states), await drawn(client, f"/interlock/exchanges/{exchange_id}.svg")


@pytest.mark.parametrize("machine", [table.name for table in TABLES])
async def test_each_machine_is_drawn_as_in_the_folder(client, machine):
    assert await drawn(client, f"/interlock/diagrams/{machine}.svg") == (HERE / f"{machine}.svg").read_text()


@pytest.mark.parametrize("durable", [False, True])
async def test_the_path_that_an_exchange_took_is_lit_in_the_machine_that_it_followed(engine, store, durable):
    engine.script = say("Yes.")
    services = to_services(engine, store, Settings(durable=durable))
    async with running(create_app(services)) as client:
        await client.post(input="Hello")
        await calm(services)
        trace, path, text = await told(client, "ex_1")

    assert trace["state"] == "DONE"
    assert lit(text) == path
    assert f"{'durable' if durable else 'exchange'}: " in text


async def test_the_row_that_refused_an_exchange_is_lit(client, services):
    await client.post(input=[])
    await calm(services)

    _, _, text = await told(client, "ex_1")

    assert ("input_empty", "VALIDATING", "REFUSED") in lit(text)[0]


async def test_the_way_of_a_failure_is_lit(client, services, engine):
    engine.script = [Text("The"), DecodeError("broken")]
    await client.post(input="Hello")
    await calm(services)

    _, path, text = await told(client, "ex_1")

    assert lit(text) == path
    assert {"FAILING", "FAILED"} <= path[1]


async def test_one_under_way_is_lit_as_far_as_it_is(client, engine):
    pause = Pause()
    engine.script = [Text("The"), pause]
    decoding = client.start(input="Hello", stream=True)
    await pause.reached.wait()

    trace, path, text = await told(client, "ex_1")

    assert trace["ended_at"] is None
    assert lit(text) == path
    assert "EMITTING" not in path[1]
    decoding.leave()
    await decoding.reply()
