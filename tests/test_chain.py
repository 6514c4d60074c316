"""A chain, seen by the clients that continue it: who may, and what becomes of it while one of its rows is written."""

import asyncio

import pytest

from handlers.app import create_app
from handlers.settings import Settings
from handlers.writes import Writes
from machines.binding import State
from tests.asgi import running
from tests.doubles import MODEL, say, to_services
from tests.storage.scripted import HARD, SOFT, TTL, FakeTime, calm
from tests.test_registry import Loadable


@pytest.fixture
def engine():
    engine = Loadable()
    engine.script = say("Hi")
    return engine


@pytest.fixture
def time():
    return FakeTime()


@pytest.fixture
def services(engine, store, time):
    """Serve by a clock that the test moves, with rows that can be held up."""
    services = to_services(engine, store, Settings(persist_wait_ms=int(SOFT * 1000)))
    services.clock = time.clock
    services.writes = Writes(HARD, TTL, time.clock, time.call_later)
    return services


@pytest.fixture
async def client(services):
    async with running(create_app(services)) as client:
        yield client


@pytest.fixture
async def gate(services):
    """Hold every row up until the gate is opened."""
    gate, put = asyncio.Event(), services.store.put

    async def put_late(row):
        await gate.wait()
        await put(row)

    services.store.put = put_late
    yield gate
    gate.set()
    while services.writes.running:
        await asyncio.wait(services.writes.running)


async def opened(gate, services):
    gate.set()
    while services.writes.running:
        await asyncio.wait(services.writes.running)
    await calm()


def follow(client, first, **body):
    return client.post(**{"input": "And?", "previous_response_id": first.json["id"], **body})


async def stuck(client, time, **body):
    """Give a response whose row has been under way for longer than the hard timeout."""
    reply = await client.post(input="Hello", **body)
    await calm()
    for seconds in (SOFT, HARD - SOFT):
        time.move(seconds)
        await calm()
    return reply


async def test_a_request_without_a_chain_is_fresh_and_one_with_a_chain_is_not(client):
    first = await client.post(input="Hello")
    second = await follow(client, first)

    assert [reply.headers["X-Session-Cache"] for reply in (first, second)] == ["fresh", "cold_replay"]


async def test_a_chain_goes_on_under_another_name_of_the_same_model(client, engine, services):
    first = await client.post(input="Hello")
    services.models.register("alias", engine)

    second = await follow(client, first, model="alias")

    assert second.status_code == 200
    assert [message["content"] for message in engine.conversations[-1]] == ["Hello", "Hi", "And?"]


async def test_the_model_is_free_for_others_while_a_row_is_written(client, services, gate):
    await client.post(input="Hello")
    await calm()
    assert (services.models[MODEL].slots.running, len(services.writes.running)) == (0, 1)

    assert (await client.post(input="Hello", store=False)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_follows_at_once_waits_for_the_write_and_is_answered(client, services, gate, stream):
    first = client.start(input="Hello", stream=stream)
    await first.seen('"status":"completed","incomplete_details"')  # of the terminal event
    second = client.start(input="And?", previous_response_id="resp_1")
    await calm()
    assert not second.task.done()

    await opened(gate, services)

    assert (await second.reply()).status_code == 200
    await first.reply()


async def test_a_stuck_write_is_a_503_while_it_is_asked_for_and_a_404_once_its_row_would_have_expired(
    client, engine, time, gate
):  # fmt: skip
    first = await stuck(client, time, metadata={"retention_seconds": 1000})
    engine.decodes.clear()
    statuses = []

    for _ in range(4):
        statuses.append((await follow(client, first)).status_code)
        time.move(TTL - 1)

    assert statuses == [503, 503, 503, 503]
    assert (await follow(client, first)).status_code == 404
    assert engine.decodes == []


async def test_a_stuck_write_that_nobody_asks_for_is_unknown_after_its_time(client, time, gate):
    first = await stuck(client, time)

    time.move(TTL)

    assert (await follow(client, first)).status_code == 404


async def test_a_stuck_write_is_vouched_for_no_longer_than_its_oldest_ancestor_lives(client, services, time, gate):
    oldest = await client.post(input="Hello", metadata={"retention_seconds": 100})
    await opened(gate, services)
    gate.clear()
    second = await stuck(client, time, previous_response_id=oldest.json["id"])

    time.move(100 - HARD - 1)
    assert (await follow(client, second)).status_code == 503
    time.move(1)

    assert (await follow(client, second)).status_code == 404


async def test_without_a_marker_a_stuck_write_is_unknown_at_once(client, services, time, gate):
    services.writes.marker_ttl = 0

    first = await stuck(client, time)

    assert (await follow(client, first)).status_code == 404


async def test_a_stuck_write_that_lands_after_all_is_continued(client, services, time, gate):
    first = await stuck(client, time)
    assert (await follow(client, first)).status_code == 503

    await opened(gate, services)

    assert (await follow(client, first)).status_code == 200
    assert not services.writes.markers


async def test_a_slow_write_keeps_the_instance_id_while_its_model_loses_its_name_and_gets_it_back(
    client, engine, services, time, gate
):  # fmt: skip
    first = await client.post(input="Hello")
    await calm()
    time.move(SOFT)
    await calm()
    assert (services.models[MODEL].leases, services.models[MODEL].retains) == (0, 1)

    services.models.unregister(MODEL)
    services.models.register(MODEL, engine)
    await opened(gate, services)

    assert (await follow(client, first)).status_code == 200


async def test_a_stuck_write_pins_neither_its_exchange_nor_its_model_but_the_instance_id(
    client, engine, services, time, gate
):  # fmt: skip
    first = await stuck(client, time)
    binding = services.models[MODEL]
    assert (services.exchanges, binding.leases, binding.retains, binding.tombstones) == (set(), 0, 0, 1)

    services.models.unregister(MODEL)
    await services.models.settled()
    assert (binding.state, engine.closes) == (State.RETIRED, 1)
    await services.models.register(MODEL, engine).load()
    await opened(gate, services)

    assert (await follow(client, first)).status_code == 200
    assert binding.tombstones == 0


async def test_a_row_that_can_be_read_is_continued_though_its_write_is_stuck(client, services, time, gate):
    first = await stuck(client, time)
    write = services.writes.known[first.json["id"]]
    await services.store._writer.put(write.attempt.args[0])

    assert services.writes.is_wedged(first.json["id"])
    assert (await follow(client, first)).status_code == 200


async def test_an_empty_id_names_no_response(client):
    reply = await client.post(input="Hello", previous_response_id="")

    assert (reply.status_code, reply.json["previous_response_id"]) == (200, None)
