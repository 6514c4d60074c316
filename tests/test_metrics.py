"""What the server counts of itself, as a scraper reads it."""

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause, call, stop, think
from handlers.app import create_app
from handlers.gauges import GAUGES
from handlers.metrics import METRICS
from handlers.recovery import recover
from handlers.settings import Settings
from machines.binding import BINDING, OPERATOR_REFUSALS
from machines.exchange import REFUSALS
from machines.tables import TABLES
from storage.errors import WriteError
from storage.rows import JobRow
from tests.asgi import running
from tests.doubles import MODEL, NOW, say, to_services
from tests.durable import calm

MOVES = "interlock_moves_total"
EVENTS = {(table.name, event) for table in TABLES for event, _ in table.edges}


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        found = [sample.value for sample in self.samples if sample.name == name and sample.labels == labels]
        return found[0] if found else 0.0


async def scrape(client) -> Scraped:
    reply = await client.request("GET", "/metrics")
    assert reply.status_code == 200
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    return Scraped(reply.text)


def moves(scraped, machine, event, model=""):
    return scraped("interlock_moves_total", machine=machine, event=event, model=model)


async def test_an_answered_request_is_counted_from_its_route_to_its_row(client, services, engine):
    engine.script = think("Hm.") + say("Yes", ".")[:-1] + stop(prompt_tokens=9, completion_tokens=3, cached_tokens=4)

    reply = await client.post(input="Hello")
    assert await services.writes.settled(reply.json["id"], 10)
    await asyncio.gather(*services.running)
    seen = await scrape(client)

    assert moves(seen, "exchange", "route_found") == 1
    for event in ("slot_granted", "decode_finished", "terminal_sent", "row_written"):
        assert moves(seen, "exchange", event, MODEL) == 1
    assert moves(seen, "output", "message_started", MODEL) == 1
    assert moves(seen, "write", "row_committed") == 1
    assert moves(seen, "binding", "model_loaded", MODEL) == 1
    tokens = [seen("interlock_tokens_total", model=MODEL, kind=kind) for kind in ("input", "cached", "output")]
    assert tokens == [9, 4, 3]
    assert seen("interlock_session_cache_total", model=MODEL, outcome="prefix_hit") == 1
    for name in ("time_to_first_token_seconds", "output_tokens_per_second"):
        assert seen(f"interlock_{name}_count", model=MODEL) == 1
    assert seen("interlock_exchange_seconds_count", model=MODEL, state="DONE") == 1
    assert seen("interlock_state_seconds_count", state="QUEUED") == 1
    assert seen("interlock_write_seconds_count") == 1


async def test_a_refusal_is_counted_by_its_row(client, services):
    slots = services.models[MODEL].slots
    for _ in range(slots.limit + 1):
        slots.take()
    await client.post(input="Hello")
    await client.request("DELETE", "/v1/models/x")
    seen = await scrape(client)

    assert seen("interlock_refusals_total", event="queue_full", status="429", model=MODEL) == 1
    assert seen("interlock_refusals_total", event="model_unknown", status="404", model="") == 1
    assert seen("interlock_exchange_seconds_count", model=MODEL, state="REFUSED") == 1


async def test_names_that_clients_make_up_are_no_labels(client):
    for name in ("made-up", "made-up-too"):
        await client.post(model=name, input="Hello")
        await client.request("GET", f"/{name}")
        await client.request("DELETE", f"/v1/models/{name}")
    seen = await scrape(client)

    assert "made-up" not in seen.text
    assert seen("interlock_refusals_total", event="model_unknown", status="404", model="") == 4


async def test_every_label_is_a_word_of_a_table(client, engine):
    engine.scripts.extend([say("Yes."), [DecodeError("broken")], call("look", "{}") + stop()])
    for _ in range(3):
        await client.post(input="Hello")
    seen = await scrape(client)

    counted = [sample.labels for sample in seen.samples if sample.name == "interlock_moves_total"]
    assert len(counted) > 10
    for labels in counted:
        assert (labels["machine"], labels["event"]) in EVENTS
        assert labels["model"] in {"", MODEL}


async def test_a_call_tells_nothing_of_the_first_token(client, engine):
    engine.script = call("look", "{}") + stop(completion_tokens=9)

    await client.post(input="Hello")
    seen = await scrape(client)

    assert seen("interlock_time_to_first_token_seconds_count", model=MODEL) == 0
    assert seen("interlock_tokens_total", model=MODEL, kind="output") == 9


async def test_what_is_under_way_is_measured_when_it_is_asked_for(client, services, engine):
    pause = Pause()
    engine.script = [Text("The"), pause]
    decoding = client.start(input="Hello", stream=True)
    await pause.reached.wait()
    services.models[MODEL].slots.take()
    engine.step_seconds = 1.5
    services.writes.reserve("resp_x", NOW + 100)
    write = services.writes.start("resp_x", asyncio.Event().wait)
    services.writes.trip(write)
    seen = await scrape(client)

    by_model = {"running": 1, "waiting": 1, "queue_limit": 16, "capacity": 1, "engine_step_seconds": 1.5}
    assert {name: seen(f"interlock_{name}", model=MODEL) for name in by_model} == by_model
    assert seen("interlock_exchanges", state="DISPATCHING") == 1
    assert (seen("interlock_writes", state="WEDGED"), seen("interlock_writes", state="LATE")) == (1, 0)
    assert moves(seen, "write", "hard_timeout_passed") == 1
    states = {state.name: seen("interlock_model_state", model=MODEL, state=state.name) for state in BINDING.states}
    assert states == {name: float(name == "READY") for name in states}
    decoding.leave()
    await decoding.reply()


async def test_a_failed_write_is_counted_and_waits_for_its_next_attempt(client, services, store, engine):
    async def fail(_):
        raise WriteError("disk full")

    store.put = fail
    engine.script = say("Yes.")
    await client.post(input="Hello")
    await asyncio.gather(*services.running)
    seen = await scrape(client)

    assert moves(seen, "write", "write_failed") == 1
    assert seen("interlock_writes", state="FAILED") == 1
    assert seen("interlock_write_seconds_count") == 0


async def test_the_metrics_want_a_token_like_the_rest(engine, store):
    async with running(create_app(to_services(engine, store, Settings(tokens={"default": "x"})))) as client:
        assert (await client.request("GET", "/metrics")).status_code == 401
        assert (await client.request("GET", "/metrics", authorization="Bearer x")).status_code == 200


async def test_two_apps_count_apart(client, engine, store):
    await client.request("GET", "/nowhere")
    async with running(create_app(to_services(engine, store))) as other:
        assert moves(await scrape(other), "exchange", "route_unknown") == 0
    assert moves(await scrape(client), "exchange", "route_unknown") == 1


async def test_open_metrics_are_given_to_who_asks_for_them(client):
    reply = await client.request("GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")

    assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


@pytest.mark.parametrize("name", [*METRICS, *GAUGES])
async def test_every_metric_is_there_under_its_name(client, name):
    await client.post(input="Hello")
    text = (await scrape(client)).text

    assert re.search(rf"^# TYPE {name} (counter|histogram|gauge)$", text, re.MULTILINE)


async def test_every_move_and_every_refusal_is_there_before_it_has_happened(client):
    seen = await scrape(client)

    counted = {name: [s for s in seen.samples if s.name == name] for name in (MOVES, "interlock_refusals_total")}
    declared = {(s.labels["machine"], s.labels["event"]) for s in counted[MOVES] if s.labels["model"] == ""}
    assert declared == EVENTS
    happened = [sample.labels["event"] for sample in counted[MOVES] if sample.value]
    assert happened == ["model_loaded"]
    refused = {(s.labels["event"], s.labels["status"], s.labels["model"]) for s in counted["interlock_refusals_total"]}
    tables = (REFUSALS, OPERATOR_REFUSALS)
    assert refused == {(event, str(row.status.value), "") for rows in tables for event, row in rows.items()}
    assert not any(sample.value for sample in counted["interlock_refusals_total"])


@pytest.mark.parametrize("durable", [False, True])
async def test_a_request_is_counted_under_the_table_that_it_follows(engine, store, durable):
    engine.script = say("Yes.")
    services = to_services(engine, store, Settings(durable=durable))
    async with running(create_app(services)) as client:
        await client.post(input="Hello")
        await calm(services)
        seen = await scrape(client)

    followed, other = ("durable", "exchange") if durable else ("exchange", "durable")
    assert moves(seen, followed, "terminal_sent", MODEL) == 1
    assert moves(seen, other, "terminal_sent", MODEL) == 0
    assert moves(seen, "provisional", "terminal_delivered") == int(durable)


async def test_a_background_response_is_counted_with_its_model(client, services, engine):
    engine.script = say("Yes.")
    await client.post(input="Hello", background=True)
    await calm(services)
    seen = await scrape(client)

    assert moves(seen, "exchange", "route_found") == 1
    assert moves(seen, "durable", "job_accepted", MODEL) == 1
    assert moves(seen, "job", "model_taken", MODEL) == 1
    assert moves(seen, "job", "response_completed", MODEL) == 1


async def test_a_background_response_that_a_crash_left_behind_is_counted(client, services, store):
    await store.begin_job(
        JobRow(
            id="resp_0", created_at=NOW, expires_at=NOW + 9, status="in_progress", response_json="{}", items_json="[]"
        )
    )
    await recover(services, store)

    assert moves(await scrape(client), "job", "server_restarted") == 1


async def test_a_call_tells_no_rate(client, engine):
    engine.script = call("look", "{}") + stop(completion_tokens=9)

    await client.post(input="Hello")

    assert (await scrape(client))("interlock_output_tokens_per_second_count", model=MODEL) == 0


async def test_traces_that_were_not_kept_are_counted(client, store):
    assert "\ninterlock_dropped_traces 0.0" in (await client.request("GET", "/metrics")).text

    store._writer.close()
    await client.post(input="Hello")

    assert "\ninterlock_dropped_traces 1.0" in (await client.request("GET", "/metrics")).text
