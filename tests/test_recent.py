"""The moves of the last minutes, and GET /interlock/live, which tells of them and of what is under way."""

import asyncio
import sys

import pytest

from engine.pieces import CacheUse, Text
from engine.scripted import Pause
from handlers.app import create_app
from handlers.recent import LONGEST, ROWS, WIDTH, Recent
from handlers.settings import Settings
from machines.driver import Move
from machines.exchange import EXCHANGE
from machines.exchange import State as Exchange
from machines.tables import TABLES
from machines.write import State as Write
from storage.errors import WriteError
from tests.asgi import running
from tests.doubles import MODEL, NOW, say, to_services
from tests.durable import calm
from tests.storage.scripted import FakeTime
from tests.tables import rows

ROUTED = Move("route_found", Exchange.ROUTING, Exchange.VALIDATING, 0.1)
STARTED = Move("write_started", Write.RESERVED, Write.IN_FLIGHT, 0.1)


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recent(clock):
    return Recent(clock)


def counts(recent, seconds):
    return {row.event: count for row, count in recent.since(seconds).items()}


def test_every_row_of_every_table_has_a_place():
    declared = {
        (table.name, event, source.name, target.name) for table in TABLES for event, source, target in rows(table)
    }

    assert set(ROWS) == declared
    assert len(ROWS) == len(declared)


def test_moves_are_counted_by_their_row(recent):
    for _ in range(3):
        recent.add("exchange", ROUTED)
    recent.add("durable", ROUTED)
    recent.add("write", STARTED)

    assert recent.since(60) == {
        ("exchange", "route_found", "ROUTING", "VALIDATING"): 3,
        ("durable", "route_found", "ROUTING", "VALIDATING"): 1,
        ("write", "write_started", "RESERVED", "IN_FLIGHT"): 1,
    }


def test_only_the_moves_of_the_window_count(recent, clock):
    recent.add("exchange", ROUTED)
    clock.now += 100
    recent.add("write", STARTED)
    clock.now += 100

    assert counts(recent, 300) == {"route_found": 1, "write_started": 1}
    assert counts(recent, 150) == {"write_started": 1}
    assert counts(recent, 60) == {}


def test_a_move_counts_for_the_whole_window_and_at_most_a_bucket_longer(recent, clock):
    recent.add("exchange", ROUTED)

    clock.now += 60
    assert counts(recent, 60) == {"route_found": 1}
    clock.now += WIDTH
    assert counts(recent, 60) == {}


def test_an_hour_is_kept_and_no_more_however_long_it_runs(recent, clock):
    for _ in range(3 * LONGEST // WIDTH):
        recent.add("exchange", ROUTED)
        clock.now += WIDTH

    assert counts(recent, LONGEST) == {"route_found": LONGEST // WIDTH}
    assert len(recent._ring) == LONGEST // WIDTH + 1
    assert sum(sys.getsizeof(bucket) for _, bucket in recent._ring) < 1_000_000


def test_nothing_was_made_before_the_first_move(recent):
    assert recent.since(LONGEST) == {}


async def live(client, query=""):
    reply = await client.request("GET", f"/interlock/live{query}")
    assert reply.status_code == 200, reply.text
    return reply.json


def moves(told, machine):
    return {
        (move["event"], move["from"], move["to"]): move["count"] for move in told["moves"] if move["machine"] == machine
    }


@pytest.mark.parametrize("durable", [False, True])
async def test_the_moves_of_every_machine_that_took_part_are_told(engine, store, durable):
    engine.script = say("Yes.")
    services = to_services(engine, store, Settings(durable=durable))
    async with running(create_app(services)) as client:
        for _ in range(2):
            await client.post(input="Hello")
            await calm(services)
        await client.post(input="Hello", background=True)
        await calm(services)
        told = await live(client)

    assert told.keys() == {"now", "window_seconds", "tracing", "moves", "models", "writes", "under_way"}
    assert (told["now"], told["window_seconds"], told["tracing"]) == (NOW, 300, True)
    machine = "durable" if durable else "exchange"
    assert moves(told, machine)["row_written", "PERSISTING", "EMITTING" if durable else "DONE"] >= 2
    assert moves(told, "durable")["job_accepted", "QUEUED", "HELD"] == 1
    assert moves(told, "output")["message_started", "NONE", "MESSAGE"] == 3
    assert moves(told, "write")["row_committed", "IN_FLIGHT", "LANDED"] == 3
    assert moves(told, "job") == {
        ("model_taken", "QUEUED", "IN_PROGRESS"): 1, ("response_completed", "IN_PROGRESS", "COMPLETED"): 1,
    }  # fmt: skip
    kept = moves(told, "provisional")["terminal_delivered", "PROVISIONAL", "KEPT"]
    assert kept == (3 if durable else 1)
    assert moves(told, "binding") == {("model_loaded", "LOADING", "READY"): 1}


async def test_a_model_is_told_with_its_queue_its_holders_and_its_caches(client, services, engine):
    engine.cache, engine.step_seconds = CacheUse(3, 4096, 8192), 1.25
    binding = services.models[MODEL]
    lease, retains = binding.lease(), [binding.retain(), binding.retain()]
    retains[0].release(wedged=True)
    for _ in range(3):
        binding.slots.take()

    (told,) = (await live(client))["models"]

    assert told == {
        "name": MODEL, "state": "READY", "instance": 1, "running": 1, "capacity": 1, "waiting": 2, "queue_limit": 16,
        "step_seconds": 1.25, "leases": 1, "retains": 1, "tombstones": 1,
        "cache": {"entries": 3, "bytes": 4096, "limit": 8192},
    }  # fmt: skip
    lease.release()


async def test_a_model_without_a_pool_of_caches_says_so(client, services):
    services.models.register("slow", type(services.models[MODEL].engine)())

    told = {model["name"]: model for model in (await live(client))["models"]}

    assert (told[MODEL]["cache"], told["slow"]["state"]) == (None, "LOADING")


async def test_writes_are_told_until_they_land_the_slowest_first(client, services):
    async def fail():
        raise WriteError("disk full")

    writes = services.writes
    for name in ("late", "stuck", "under way", "failed", "reserved"):
        writes.reserve(name, NOW + 100)
    started = {name: writes.start(name, asyncio.Event().wait) for name in ("late", "stuck", "under way")}
    started["failed"] = writes.start("failed", fail)
    await started["late"].landed(0)
    writes.trip(started["stuck"])
    for seconds, name in enumerate(("under way", "failed", "late", "stuck")):
        started[name].started -= 10 * seconds

    told = (await live(client))["writes"]

    assert [(write["id"], write["state"]) for write in told] == [
        ("stuck", "WEDGED"), ("late", "LATE"), ("failed", "FAILED"), ("under way", "IN_FLIGHT"),
    ]  # fmt: skip
    assert [int(write["seconds"] // 10) for write in told] == [3, 2, 1, 0]


async def test_a_write_nobody_vouches_for_is_told_while_it_may_still_land(client, services):
    time = FakeTime()
    services.writes.clock = time.clock
    services.writes.reserve("resp_x", None)
    write = services.writes.start("resp_x", asyncio.Event().wait)
    services.writes.trip(write)
    write.move("marker_expired")

    assert [(one["id"], one["state"]) for one in (await live(client))["writes"]] == [("resp_x", "EXPIRED")]


async def test_no_more_than_a_hundred_writes_are_told(client, services):
    for number in range(120):
        services.writes.reserve(f"resp_{number}", None)
        services.writes.start(f"resp_{number}", asyncio.Event().wait)

    assert len((await live(client))["writes"]) == 100


async def test_those_under_way_are_told_the_oldest_first_and_at_most_a_hundred(engine, store):
    engine.capacity = 120
    services = to_services(engine, store)
    async with running(create_app(services)) as client:
        calls = []
        for _ in range(105):
            pause = Pause()
            engine.scripts.append([Text("The"), pause])
            calls.append(client.start(input="Hello"))
            await pause.reached.wait()
        told = (await live(client))["under_way"]
        for call in calls:
            call.leave()
            await call.reply()

    assert [trace["id"] for trace in told] == [f"ex_{number}" for number in range(1, 101)]
    assert {trace["ended_at"] for trace in told} == {None}


@pytest.mark.parametrize("seconds", ["59", "3601", "many", "", "60.5"])
async def test_a_window_that_cannot_be_looked_back_is_named(client, seconds):
    reply = await client.request("GET", f"/interlock/live?seconds={seconds}")

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "seconds")


@pytest.mark.parametrize("seconds", [60, 3600])
async def test_a_window_may_be_a_minute_or_an_hour(client, seconds):
    assert (await live(client, f"?seconds={seconds}"))["window_seconds"] == seconds


async def test_a_move_is_counted_where_it_is_made_and_not_looked_for(client, services):
    await client.request("GET", "/nowhere")

    assert moves(await live(client), EXCHANGE.name) == {("route_unknown", "ROUTING", "REFUSED"): 1}
