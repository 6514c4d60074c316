"""/interlock/exchanges: how exchanges went, one or pages of them, without a word of their content."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from engine.errors import DecodeError
from engine.pieces import Text
from engine.scripted import Pause, call, stop, think
from handlers.app import create_app
from handlers.exchange import Exchange, Incoming
from handlers.mapping.to_trace import to_trace
from handlers.report import to_trace_row
from handlers.settings import Settings
from machines.driver import Move
from machines.exchange import REFUSALS, State
from storage.errors import ReadError, WriteError
from storage.store import open_store
from tests.asgi import running
from tests.doubles import MODEL, NOW, say, to_services, watch
from tests.durable import Gate, calm

LISTED = "/interlock/exchanges"
TIME = "2025-06-15T15:06:40"  # what NOW is, in UTC


async def shown(client, exchange_id):
    reply = await client.request("GET", f"{LISTED}/{exchange_id}")
    assert reply.status_code == 200, reply.text
    return reply.json


async def listed(client, query=""):
    reply = await client.request("GET", f"{LISTED}?{query}")
    assert reply.status_code == 200, reply.text
    page = reply.json
    ids = [trace["id"] for trace in page["data"]]
    assert page["object"] == "list"
    assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
    return ids, page["has_more"]


async def answered(client, services, **body):
    """Have a request answered, and wait for its end; gives the id of its exchange."""
    reply = await client.post(**{"input": "Hello", **body})
    await calm(services)
    return reply.headers["X-Interlock-Exchange"]


@asynccontextmanager
async def serving(engine, store, **settings):
    services = to_services(engine, store, Settings(**settings))
    async with running(create_app(services)) as client:
        yield client, services


# One exchange


async def test_a_trace_tells_the_path_and_what_was_measured(client, services, engine):
    engine.script = think("Hm.") + say("Yes", ".")[:-1] + stop(prompt_tokens=9, completion_tokens=3, cached_tokens=4)

    trace = await shown(client, await answered(client, services, input="one two three"))

    assert list(trace) == [
        "object", "id", "machine", "started_at", "ended_at", "method", "path", "state", "event", "status", "model",
        "response_id", "moves", "facts", "code", "message",
    ]  # fmt: skip
    assert (trace["object"], trace["id"], trace["machine"]) == ("exchange", "ex_1", "exchange")
    assert (trace["method"], trace["path"], trace["model"]) == ("POST", "/v1/responses", MODEL)
    assert (trace["state"], trace["event"], trace["status"]) == ("DONE", "row_written", None)
    assert (trace["response_id"], trace["code"], trace["message"]) == ("resp_1", None, None)
    assert trace["moves"][0].keys() == {"event", "from", "to", "ms"}
    assert [move["from"] for move in trace["moves"]] == [
        "ROUTING", "VALIDATING", "BINDING", "RESOLVING", "PREPARING", "QUEUED", "DISPATCHING", "EMITTING", "PERSISTING",
    ]  # fmt: skip
    spent = sum(move["ms"] for move in trace["moves"])
    assert trace["ended_at"] == NOW
    assert trace["started_at"] == pytest.approx(NOW - spent / 1000, abs=0.001)
    facts = trace["facts"]
    counts = {name: facts[name] for name in ("ahead", "running", "prompt_tokens", "cached_tokens", "output_tokens")}
    assert counts == {"ahead": 0, "running": 0, "prompt_tokens": 3, "cached_tokens": 4, "output_tokens": 3}
    assert 0 < facts["first_token_ms"] < spent
    assert facts["tokens_per_second"] > 0
    assert facts["write_ms"] == trace["moves"][-1]["ms"]
    assert facts.keys() == {*counts, "first_token_ms", "tokens_per_second", "write_ms"}


async def test_a_call_tells_nothing_of_the_first_token(client, services, engine):
    engine.script = call("look", "{}") + stop(completion_tokens=9)

    facts = (await shown(client, await answered(client, services)))["facts"]

    assert facts["output_tokens"] == 9
    assert not {"first_token_ms", "tokens_per_second"} & facts.keys()


async def test_a_request_that_waited_tells_how_many_were_before_it(client, services, engine):
    slots = services.models[MODEL].slots
    places = [slots.take() for _ in range(3)]
    engine.script = say("Yes.")
    taken = watch(slots, "take")
    waiting = client.start(input="Hello")
    await taken.wait()
    for place in places:
        place.leave()
    reply = await waiting.reply()
    await calm(services)

    facts = (await shown(client, reply.headers["X-Interlock-Exchange"]))["facts"]

    assert (facts["ahead"], facts["running"]) == (2, 1)


async def test_a_refusal_tells_its_row_with_the_numbers_filled_in_and_no_text(client, services):
    slots = services.models[MODEL].slots
    for _ in range(slots.limit + 1):
        slots.take()

    trace = await shown(client, await answered(client, services))

    assert (trace["state"], trace["event"], trace["status"], trace["code"]) == (
        "REFUSED", "queue_full", 429, "queue_full",
    )  # fmt: skip
    assert trace["message"] == "16 requests are waiting for model {model} (limit 16); try again in 1s."
    assert trace["facts"] == {
        "ahead": 16, "running": 1, "prompt_tokens": 1, "waiting": 16, "limit": 16, "retry_after": 1,
    }  # fmt: skip
    assert trace["response_id"] == "resp_1"


async def test_a_refusal_tells_no_numbers_that_its_row_does_not(client, services):
    trace = await shown(client, await answered(client, services, input=[]))

    assert (trace["event"], trace["facts"]) == ("input_empty", {})
    assert trace["message"] == REFUSALS["input_empty"].message


async def test_a_failure_tells_the_row_that_led_to_it(client, services, engine):
    engine.script = [Text("The"), DecodeError("broken")]

    trace = await shown(client, await answered(client, services))

    assert (trace["state"], trace["event"], trace["code"]) == ("FAILED", "failure_sent", "server_error")
    assert trace["message"] == "The model failed while decoding; the server's log names exchange {exchange}."
    assert "write_ms" not in trace["facts"]


@pytest.mark.parametrize(
    ("durable", "machine", "message"),
    [
        (True, "durable", "The response could not be stored; retry, or set `store` to false."),
        (False, "exchange", None),  # its client was told that it completed
    ],
)
async def test_a_row_that_was_lost_is_told_by_the_table_that_was_followed(engine, store, durable, machine, message):
    async def fail(_):
        raise WriteError("disk full")

    store.put = fail
    engine.script = say("Yes.")
    async with serving(engine, store, durable=durable) as (client, services):
        trace = await shown(client, await answered(client, services))

    assert (trace["machine"], trace["state"], trace["message"]) == (machine, "FAILED", message)
    assert "row_lost" in {move["event"] for move in trace["moves"]}


async def test_a_background_response_followed_the_durable_table(client, services, engine):
    engine.script = say("Yes.")

    trace = await shown(client, await answered(client, services, background=True))

    assert (trace["machine"], trace["state"]) == ("durable", "DONE")
    assert "job_accepted" in {move["event"] for move in trace["moves"]}


async def test_a_move_whose_callback_broke_is_told_as_it_was_made(services):
    exchange = Exchange(services, Incoming(method="POST", path="/v1/responses"))
    exchange.trace = [
        Move("decode_finished", State.DISPATCHING, State.DISPATCHING, 1.0),  # it did not get on
        Move("crashed", State.DISPATCHING, State.FAILING, 2.0),
    ]

    trace = to_trace(to_trace_row(exchange))

    assert [(move.event, move.source, move.target, move.ms) for move in trace.moves] == [
        ("decode_finished", "DISPATCHING", "DISPATCHING", 1.0), ("crashed", "DISPATCHING", "FAILING", 2.0),
    ]  # fmt: skip


async def test_a_row_that_is_late_has_no_time_of_its_own(client, services, engine):
    services.settings = Settings(persist_wait_ms=1)
    puts = Gate(services.store, "put")
    engine.script = say("Yes.")
    reply = await client.post(input="Hello")
    await asyncio.gather(*services.running)

    trace = await shown(client, reply.headers["X-Interlock-Exchange"])

    assert trace["event"] == "row_late"
    assert "write_ms" not in trace["facts"]
    puts.opened.set()


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_exchange_under_way_is_told_as_far_as_it_is(engine, store, keeps):
    pause = Pause()
    engine.script = [Text("The"), pause]
    async with serving(engine, store if keeps else None) as (client, _):
        decoding = client.start(input="Hello", stream=True)
        await pause.reached.wait()
        trace = await shown(client, "ex_1")
        page = await listed(client)
        decoding.leave()
        await decoding.reply()

    assert (trace["state"], trace["ended_at"], trace["event"]) == ("DISPATCHING", None, "slot_granted")
    assert trace["started_at"] <= NOW
    assert trace["facts"]["first_token_ms"] > 0
    assert page == (["ex_1"], False)


async def test_one_that_ended_while_it_was_looked_for_is_found(client, services, engine):
    pause = Pause()
    engine.script = [Text("The"), pause, *say(".")]
    decoding = client.start(input="Hello")
    await pause.reached.wait()
    read = services.store.traces

    async def end_meanwhile(asked):
        pause.resume.set()
        await decoding.reply()
        await calm(services)
        return await read(asked)

    services.store.traces = end_meanwhile
    (trace,) = (await client.request("GET", LISTED)).json["data"]

    assert (trace["id"], trace["state"], trace["ended_at"]) == ("ex_1", "DONE", NOW)


@pytest.mark.parametrize("path", ["/ex_1", "/ex_1.svg", ""])
async def test_a_store_that_cannot_read_is_the_servers_fault(client, store, path):
    async def break_off(_):
        raise ReadError

    store.trace = store.traces = break_off

    assert (await client.request("GET", f"{LISTED}{path}")).status_code == 500


async def test_a_response_is_not_known_by_its_id_where_an_exchange_is_asked_for(client, services, engine):
    engine.script = say("Yes.")
    await answered(client, services)

    assert (await client.request("GET", f"{LISTED}/resp_1")).status_code == 404
    assert await listed(client, "response_id=resp_1") == (["ex_1"], False)


# Lists


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_pages_show_each_exchange_once_though_all_ended_at_one_time(client, services, limit):
    ids = {await answered(client, services, input=[]) for _ in range(5)}

    seen, more, after = [], True, ""
    while more:
        page, more = await listed(client, f"limit={limit}{after}")
        assert len(page) <= limit
        seen += page
        after = f"&after={page[-1]}"

    assert sorted(seen) == sorted(ids)


async def test_the_newest_comes_first_and_a_page_is_twenty_unless_asked(client, services):
    for second in range(25):
        services.clock = lambda second=second: NOW + second
        await answered(client, services, input=[])

    ids, more = await listed(client)

    assert ids == [f"ex_{number}" for number in range(25, 5, -1)]
    assert more


async def starting(client, engine, count):
    """Begin so many requests that all decode, one after another."""
    calls = []
    for _ in range(count):
        pause = Pause()
        engine.scripts.append([Text("The"), pause, *say(".")])
        calls.append((client.start(input="Hello"), pause))
        await pause.reached.wait()
    return calls


async def end(calls):
    for decoding, pause in calls:
        pause.resume.set()
        await decoding.reply()


@pytest.fixture
def together(engine):
    """Let the model decode eight at once."""
    engine.capacity = 8


async def test_those_under_way_come_first_unless_the_page_begins_later(together, client, services, engine):
    ended = await answered(client, services, input=[])
    calls = await starting(client, engine, 3)

    assert await listed(client) == (["ex_4", "ex_3", "ex_2", ended], False)
    assert await listed(client, "limit=2") == (["ex_4", "ex_3"], True)
    assert await listed(client, "limit=2&after=ex_3") == (["ex_2", ended], False)
    assert await listed(client, f"after={ended}") == ([], False)
    assert await listed(client, f"until={NOW + 9}") == ([ended], False)
    assert await listed(client, "state=DISPATCHING") == (["ex_4", "ex_3", "ex_2"], False)
    assert await listed(client, "event=slot_granted&response_id=resp_2") == (["ex_3"], False)
    assert await listed(client, f"model={MODEL}") == (["ex_4", "ex_3", "ex_2"], False)
    assert await listed(client, "status=400") == ([ended], False)
    assert await listed(client, f"since={NOW + 9}") == (["ex_4", "ex_3", "ex_2"], False)

    await end(calls)


async def test_a_page_goes_on_after_one_that_has_ended_since(together, client, services, engine):
    ended = await answered(client, services, input=[])
    calls = await starting(client, engine, 2)
    assert await listed(client, "limit=1") == (["ex_3"], True)
    services.clock = lambda: NOW + 1
    await end(calls)
    await calm(services)

    assert await listed(client, "after=ex_3") == (["ex_2", ended], False)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("event=queue_full", ["ex_3"]),
        ("event=prompt_made", ["ex_3", "ex_1"]),
        ("event=binding_changed", []),
        ("state=REFUSED", ["ex_3", "ex_2"]),
        ("status=429", ["ex_3"]),
        ("status=503", []),
        (f"model={MODEL}", ["ex_3", "ex_1"]),
        ("response_id=resp_2", ["ex_3"]),
        (f"since={NOW + 100}", ["ex_3", "ex_2"]),
        (f"until={NOW + 99.5}", ["ex_1"]),
        (f"since={TIME[:-2]}50Z", ["ex_3", "ex_2"]),
        (f"since={TIME}Z&until={TIME}Z", ["ex_1"]),
        (f"since={TIME[:-5]}08:20%2B00:00", ["ex_3", "ex_2"]),
        ("since=2025-06-15T17:08:20+02:00", ["ex_3", "ex_2"]),
        ("state=REFUSED&status=400&event=input_empty&limit=1000", ["ex_2"]),
        ("colour=blue&limit=1", ["ex_3"]),
    ],
)
async def test_a_list_has_what_was_asked_for(client, services, engine, query, ids):
    engine.script = say("Yes.")
    await answered(client, services)
    services.clock = lambda: NOW + 100
    await answered(client, services, input=[])
    slots = services.models[MODEL].slots
    for _ in range(slots.limit + 1):
        slots.take()
    services.clock = lambda: NOW + 200
    await answered(client, services)

    assert (await listed(client, query))[0] == ids


@pytest.mark.parametrize(
    "query",
    [
        "event=", "event=queue_fool", "event=QUEUED", "event=row_committed", "event=a&event=b", "state=done",
        "state=LOADING", "status=99", "status=600", "status=many", "since=yesterday", "since=nan", "since=",
        "until=inf", "until=2025-06-15", "until=2025-06-15T12:00:00", "until=2025-02-30T12:00:00Z", "limit=0",
        "limit=1001", "limit=-1", "limit=2.5", "limit=", "after=", "after=ex_nobody", "after=resp_1",
        'event=queue_full"%2C"', "event=%25",
    ],
)  # fmt: skip
async def test_a_value_that_cannot_be_asked_for_is_named(client, services, query):
    await answered(client, services, input=[])

    reply = await client.request("GET", f"{LISTED}?{query}")

    error = reply.json["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "invalid_value", query.partition("=")[0])
    assert error["message"].startswith(f"Invalid value for `{error['param']}`: ")
    trace = await shown(client, reply.headers["X-Interlock-Exchange"])
    assert (trace["event"], trace["message"]) == ("query_invalid", "Invalid value for `{param}`: {reason}.")


# Who may ask, and what is never told

ROUTES = [LISTED, f"{LISTED}/ex_1", f"{LISTED}/ex_1.svg", "/interlock/live", "/interlock/diagrams/write.svg"]


@pytest.mark.parametrize("path", ROUTES)
async def test_a_stranger_is_told_nothing(engine, store, path):
    async with serving(engine, store, tokens={"default": "x"}) as (client, _):
        assert (await client.request("GET", path)).status_code == 401
        assert (await client.request("GET", path, authorization="Bearer guess")).status_code == 401
        assert (await client.request("GET", path, authorization="Bearer x")).status_code != 401
    async with serving(engine, store) as (client, _):
        assert (await client.request("GET", path, host="evil.example")).status_code == 403
        assert (await client.request("GET", path, origin="https://evil.example")).status_code == 403


@pytest.mark.parametrize("path", ROUTES)
async def test_what_was_asked_for_is_only_read(client, path):
    for method in ("POST", "PUT", "DELETE"):
        assert (await client.request(method, path)).status_code == 405


MARKER = "marzipan"
TOOL = {"type": "function", "name": MARKER, "description": MARKER, "parameters": {"type": "object"}}
SECRETS = [
    {"input": MARKER, "instructions": MARKER, "metadata": {MARKER: MARKER}, "prompt_cache_key": MARKER,
     "safety_identifier": MARKER, "tools": [TOOL], "user": MARKER, MARKER: MARKER},
    {"input": MARKER, "stream": True, "text": {"format": {"type": "json_schema", "name": MARKER, "schema": {}}}},
    {"input": [{"role": MARKER, "content": MARKER}]},
    {"input": [{"role": "user", "content": MARKER}, {"type": "item_reference", "id": MARKER}]},
    {"input": [{"type": "function_call_output", "call_id": MARKER, "output": MARKER}]},
    {"input": [{"type": "function_call", "call_id": MARKER, "name": MARKER, "arguments": "{}"}]},
    {"input": MARKER, "model": MARKER},
    {"input": MARKER, "previous_response_id": MARKER},
    {"input": MARKER, "tool_choice": {"type": "function", "name": MARKER}},
    {"input": MARKER, "temperature": MARKER},
    {"input": MARKER, "service_tier": MARKER, "prompt": {"id": MARKER}},
    {"input": MARKER, "conversation": MARKER},
]  # fmt: skip


async def test_what_clients_say_is_in_no_trace_no_list_no_count_and_not_in_the_database(engine, tmp_path):
    file = tmp_path / "responses.duckdb"
    store, pause = open_store(str(file)), Pause()
    engine.script = think(MARKER) + say(MARKER, MARKER)
    async with serving(engine, store) as (client, services):
        ids = [await answered(client, services, store=False, **secret) for secret in SECRETS]
        engine.script = [Text(MARKER), pause]
        decoding = client.start(input=MARKER, store=False)
        await pause.reached.wait()
        paths = [f"{LISTED}?limit=1000", "/interlock/live", "/metrics", "/health"]
        paths += [f"{LISTED}/{exchange_id}{kind}" for exchange_id in [*ids, "ex_13"] for kind in ("", ".svg")]
        told = [await client.request("GET", path) for path in paths]
        decoding.leave()
        await decoding.reply()
        rows = store._database.connection.execute("SELECT * FROM traces").fetchall()
        assert len(rows) == len(SECRETS)

    assert {reply.status_code for reply in told} == {200}
    assert [reply.text for reply in told if MARKER in reply.text] == []
    assert MARKER not in str(rows)
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"queued" in written.lower()
    assert MARKER.encode() not in written


@pytest.mark.parametrize(
    ("method", "path", "kept"),
    [
        ("GET", f"/{MARKER}", ("GET", "")),
        ("PATCH", f"/v1/responses/{MARKER}", ("PATCH", "/v1/responses/{response_id}")),
        ("GET", f"{LISTED}/{MARKER}", ("GET", f"{LISTED}/{{exchange_id}}")),
        ("GET", f"/interlock/diagrams/{MARKER}.svg", ("GET", "/interlock/diagrams/{machine}.svg")),
        (MARKER.upper(), "/health", ("", "/health")),
    ],
)
async def test_what_a_client_puts_into_a_path_or_a_method_is_in_the_log_alone(
    client, services, caplog, method, path, kept
):
    caplog.set_level("INFO", "interlock")
    reply = await client.request(method, path)
    await calm(services)

    trace = await shown(client, reply.headers["X-Interlock-Exchange"])

    assert (trace["method"], trace["path"]) == kept
    assert MARKER not in str(trace).lower()
    assert any(f"{method} {path!r}" in message for message in caplog.messages)


async def test_the_trace_of_a_deleted_response_loses_its_link(client, services, engine):
    engine.script = say("Yes.")
    exchange_id = await answered(client, services)

    await client.request("DELETE", "/v1/responses/resp_1")
    await calm(services)

    assert (await shown(client, exchange_id))["response_id"] is None
    assert await listed(client, "response_id=resp_1") == ([], False)


async def test_a_response_that_is_deleted_before_its_trace_was_kept_leaves_no_link(
    client, services, engine, monkeypatch
):  # fmt: skip
    engine.script = say("Yes.")
    held = asyncio.Event()

    async def wait(exchange):
        if exchange.incoming.asked == "create":
            await held.wait()

    monkeypatch.setattr("handlers.steps.end_job", wait)
    reply = await client.post(input="Hello")
    assert await services.writes.settled("resp_1", 10)
    deleted = await client.request("DELETE", "/v1/responses/resp_1")
    under_way = await shown(client, reply.headers["X-Interlock-Exchange"])
    held.set()
    await calm(services)

    assert deleted.status_code == 200
    kept = await shown(client, reply.headers["X-Interlock-Exchange"])
    assert [(trace["state"], trace["response_id"]) for trace in (under_way, kept)] == [("DONE", None)] * 2
    assert (under_way["ended_at"], kept["ended_at"]) == (None, NOW)


# Turned off


async def test_traces_that_are_turned_off_are_not_kept_and_those_under_way_are_told(engine, store):
    pause = Pause()
    engine.scripts.append(say("Yes."))
    engine.script = [Text("The"), pause]
    async with serving(engine, store, trace_retention_seconds=0) as (client, services):
        exchange_id = await answered(client, services)
        decoding = client.start(input="Hello")
        await pause.reached.wait()
        unknown = await client.request("GET", f"{LISTED}/{exchange_id}")
        ids = await listed(client)
        live = await client.request("GET", "/interlock/live")
        decoding.leave()
        await decoding.reply()
        rows = store._database.connection.execute(
            "SELECT id FROM exchanges UNION ALL SELECT path FROM kinds"
        ).fetchall()

    assert (unknown.status_code, unknown.json["error"]["message"]) == (
        404, "Exchange 'ex_1' left no trace here, or none that is still kept: this server keeps no traces.",
    )  # fmt: skip
    assert ids == (["ex_2"], False)
    assert live.json["tracing"] is False
    assert [trace["id"] for trace in live.json["under_way"]] == ["ex_2"]
    assert rows == []


async def test_a_server_without_a_database_keeps_no_traces(engine):
    async with serving(engine, None) as (client, services):
        exchange_id = await answered(client, services, input=[])

        assert await listed(client) == ([], False)
        assert (await client.request("GET", f"{LISTED}/{exchange_id}")).status_code == 404
        assert (await client.request("GET", f"{LISTED}?after={exchange_id}")).status_code == 400
        assert (await client.request("GET", "/interlock/live")).json["tracing"] is False


# Every reply


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200), ("GET", "/metrics", 200), ("GET", "/v1/models", 200),
        ("GET", f"/v1/models/{MODEL}", 200),
        ("GET", "/v1/models/x", 404), ("PUT", "/v1/models/x", 400), ("DELETE", "/v1/models/x", 404),
        ("DELETE", f"/v1/models/{MODEL}", 200), ("GET", "/nowhere", 404), ("POST", "/health", 405),
        ("GET", LISTED, 200), ("GET", f"{LISTED}?limit=0", 400), ("GET", f"{LISTED}/ex_0", 404),
        ("GET", f"{LISTED}/ex_0.svg", 404), ("GET", "/interlock/live", 200), ("GET", "/interlock/live?seconds=1", 400),
        ("GET", "/interlock/diagrams/job.svg", 200), ("GET", "/interlock/diagrams/x.svg", 404),
        ("OPTIONS", "/v1/models", 200), ("POST", "/v1/responses", 400), ("DELETE", "/v1/responses/resp_1", 404),
    ],
)  # fmt: skip
async def test_every_reply_has_the_id_of_its_exchange(client, method, path, status):
    first, second = [await client.request(method, path) for _ in range(2)]

    assert first.status_code == status
    names = [reply.headers["X-Interlock-Exchange"] for reply in (first, second)]
    assert all(name.startswith("ex_") for name in names)
    assert len(set(names)) == 2


async def test_what_an_operator_was_refused_is_in_the_log_under_its_id(client, caplog):
    caplog.set_level("INFO", "interlock")

    reply = await client.request("PUT", "/v1/models/x", b"{}")

    name = reply.headers["X-Interlock-Exchange"]
    assert f"{name} PUT '/v1/models/x': refused by source_missing 400" in caplog.messages
