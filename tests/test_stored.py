"""Stored responses: shown as they were told, listed, deleted; what is on its way is waited for."""

import asyncio
from functools import partial

import msgspec
import pytest

from engine.pieces import ChosenToken, LikelyToken, Text
from engine.scripted import call, stop, think
from handlers.app import create_app
from handlers.settings import Settings
from machines.exchange import State
from storage.errors import WriteError
from storage.rows import Missing
from tests.asgi import running
from tests.doubles import NOW, hold, say, to_services
from tests.durable import Gate, calm
from tests.test_refusals import World, start_endless

STORED = "/v1/responses/resp_1"
TOOLS = [
    {"type": "function", "name": "weather", "parameters": {"type": "object"}, "description": None, "strict": None},
    {"type": "custom", "name": "patch"},
]
SCHEMA = {"type": "json_schema", "name": "answer", "schema": {"type": "object", "x": [1.5, -0.0, 1e30, "ü"]}}
CHOSEN = Text("Hi", [ChosenToken("Hi", -0.25, [72, 105], [LikelyToken("Ho", -1.5, [72, 111])])])


def fails(*_):
    raise WriteError("disk full")


@pytest.fixture(autouse=True)
def script(engine):
    engine.script = say("Noted.")


def ask(client, method="GET", path=STORED):
    return client.request(method, path)


SHAPES = {
    "plain": ({}, say("Noted.", prompt_tokens=3)),
    "logprobs": ({"top_logprobs": 2, "include": ["message.output_text.logprobs"]}, [CHOSEN, *stop()]),
    "reasoning": ({"reasoning": {"effort": "low"}}, think("Hm.") + say("Yes.")),
    "tools": ({"tools": TOOLS}, call("weather", {"city": "Oslo"}) + call("patch", {"input": "a\nb"}) + stop()),
    "format": ({"text": {"format": SCHEMA}}, say("{}")),
    "settings": (
        {
            "temperature": 1, "top_p": 0.3, "metadata": {"k": "v"}, "prompt_cache_key": "p", "max_tool_calls": 3,
            "safety_identifier": "s", "parallel_tool_calls": False, "max_output_tokens": 99, "instructions": "Be kind.",
            "truncation": "disabled", "presence_penalty": 0.5,
        },
        say("Noted."),
    ),
    "limit": ({"max_output_tokens": 1}, say("No", reason="length")),
    "nothing": ({}, stop()),
}  # fmt: skip


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_stored_response_is_shown_byte_for_byte_as_it_was_told(engine, store, shape, durable):
    asked, engine.script = SHAPES[shape]
    async with running(create_app(to_services(engine, store, Settings(durable=durable)))) as client:
        told = await client.post(input="Hello", **asked)

        assert (await ask(client)).text == told.text


async def test_instructions_that_were_inherited_are_shown(client):
    await client.post(input="Hello", instructions="Be kind.")
    told = await client.post(input="And?", previous_response_id="resp_1")

    shown = await ask(client, path="/v1/responses/resp_2")

    assert shown.text == told.text
    assert shown.json["instructions"] == "Be kind."


async def changed(services, **changes):
    row = await services.store.row("resp_1", NOW)
    await services.store.put(msgspec.structs.replace(row, id="resp_old", **changes))


async def test_a_row_of_an_older_server_is_shown_with_defaults(client, services):
    told = await client.post(input="Hello")
    await calm(services)
    await changed(services, config_json='{"temperature": 0.5}')

    shown = await ask(client, path="/v1/responses/resp_old")

    assert shown.json == {**told.json, "id": "resp_old", "temperature": 0.5}


@pytest.mark.parametrize("field", ["config_json", "output_json", "usage_json"])
async def test_a_damaged_row_is_the_servers_fault(client, services, field):
    await client.post(input="Hello")
    await calm(services)
    await changed(services, **{field: "{"})

    shown = await ask(client, path="/v1/responses/resp_old")

    assert (shown.status_code, shown.json["error"]["param"]) == (500, "response_id")


@pytest.mark.parametrize(("later", "status"), [(59, 200), (61, 404)])
async def test_it_is_shown_until_it_expires(client, services, later, status):
    await client.post(input="Hello", metadata={"retention_seconds": 60})
    await calm(services)

    services.clock = lambda: NOW + later

    assert (await ask(client)).status_code == status


async def test_it_is_shown_though_what_it_continued_has_expired(client, services):
    await client.post(input="Hello", metadata={"retention_seconds": 60})
    await client.post(input="And?", previous_response_id="resp_1")
    await calm(services)

    services.clock = lambda: NOW + 61

    assert (await ask(client, path="/v1/responses/resp_2")).status_code == 200


async def test_what_was_not_to_be_stored_is_not_shown(client):
    await client.post(input="Hello", store=False)

    assert (await ask(client)).status_code == 404


async def test_a_server_without_a_store_has_none(engine):
    async with running(create_app(to_services(engine, None))) as client:
        await client.post(input="Hello")

        assert (await ask(client)).status_code == 404
        assert (await ask(client, "DELETE")).status_code == 404


async def test_a_write_in_flight_is_waited_for(client, services):
    puts = Gate(services.store, "put")
    told = await client.post(input="Hello")
    asked = client.call("GET", STORED)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.task.done()

    puts.opened.set()

    assert (await asked.reply()).text == told.text


async def test_a_row_that_is_out_of_sight_is_not_shown(engine, store):
    services = to_services(engine, store, Settings(durable=True, write_wait_ms=1))
    withdraws = Gate(store, "withdraw")
    async with running(create_app(services)) as client:
        leaving = client.start(input="Hello")
        leaving.leave_on = b"Noted."
        await leaving.reply()
        await withdraws.asked.wait()

        hidden = await ask(client)
        withdraws.opened.set()
        await calm(services)

        assert (hidden.status_code, (await ask(client)).status_code) == (404, 404)


async def test_a_stuck_write_is_a_503_until_its_marker_is_dead(client, services, engine):
    services.writes.trip(start_endless(World(client, services, engine)))

    stuck = await ask(client, path="/v1/responses/resp_stray")
    services.writes.clock = lambda: NOW + 1000
    dead = await ask(client, path="/v1/responses/resp_stray")

    assert (stuck.status_code, stuck.headers["Retry-After"], dead.status_code) == (503, "1", 404)


async def failed_write(client, services):
    """Have a row that could not be written and is kept in memory; gives the store's own put."""
    put, services.store.put = services.store.put, fails
    await client.post(input="Hello")
    await calm(services)
    assert services.writes.failed
    return put


async def test_a_row_that_could_not_be_written_is_written_for_whoever_asks(client, services):
    put = await failed_write(client, services)
    refused = await ask(client)
    for write in services.writes.failed:
        write.attempt = partial(put, write.attempt.args[0])

    assert (refused.status_code, (await ask(client)).status_code) == (503, 200)


async def test_a_client_that_leaves_before_it_is_shown_is_taken_note_of(client, services, ended):
    reading = hold(services.store, "row")
    asked = client.call("GET", STORED)
    await reading.wait()

    asked.leave()
    await asked.reply()
    await calm(services)

    assert (ended[-1].state, ended[-1].event) == (State.ABANDONED, "client_gone")


async def test_a_look_up_that_breaks_is_a_500(client, services, ended):
    services.writes.is_pending = None

    shown = await ask(client)

    assert (shown.status_code, shown.json["error"]["code"]) == (500, "server_error")
    assert (ended[-1].state, ended[-1].event) == (State.REFUSED, "crashed")


# Streams


@pytest.mark.parametrize("stream", ["true", "True", "1"])
async def test_one_that_was_not_made_in_the_background_has_no_events(client, services, stream):
    await client.post(input="Hello")
    await calm(services)

    shown = await ask(client, path=f"{STORED}?stream={stream}")

    assert shown.status_code == 400
    assert shown.json["error"]["message"].endswith("so it has no events to stream.")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=maybe", "stream"),
        ("starting_after=x", "starting_after"),
        ("starting_after=-2", "starting_after"),
        ("starting_after=1&starting_after=2", "starting_after"),
    ],
)
async def test_a_wrong_query_names_its_field(client, services, query, param):
    await client.post(input="Hello")
    await calm(services)

    shown = await ask(client, path=f"{STORED}?{query}")

    assert (shown.status_code, shown.json["error"]["param"]) == (400, param)


async def test_a_query_that_is_not_known_is_ignored(client):
    await client.post(input="Hello")

    assert (await ask(client, path=f"{STORED}?include%5B%5D=x&include_obfuscation=false&stream=false")).json["output"]


# Input items

ITEMS = [
    {"role": "user", "content": "One"},
    {"type": "message", "id": "msg_own", "role": "assistant", "content": [{"type": "output_text", "text": "Two"}]},
    {"role": "assistant", "content": "Three"},
    {"role": "developer", "content": None},
    {"role": "user", "content": "Five"},
]


def ids(page):
    return [item["id"] for item in page.json["data"]]


@pytest.fixture
async def listed(client, services):
    await client.post(input=ITEMS)
    await calm(services)
    return partial(_list, client)


async def _list(client, query="order=asc"):
    return await ask(client, path=f"{STORED}/input_items?{query}")


async def test_input_items_are_complete_and_the_newest_come_first(listed):
    newest, oldest = await listed(""), await listed()

    assert newest.json["data"] == oldest.json["data"][::-1]
    assert all({"id", "type", "status", "role", "content"} <= item.keys() for item in oldest.json["data"])
    assert oldest.json["data"][0]["content"] == [{"type": "input_text", "text": "One"}]
    assert oldest.json["data"][2]["content"][0]["type"] == "output_text"
    assert oldest.json["data"][3]["content"] == []
    assert ids(oldest)[1] == "msg_own"
    assert len(set(ids(oldest))) == len(ITEMS)
    assert ids(await listed()) == ids(oldest)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_join_to_the_list(listed, order, limit):
    pages = [await listed(f"order={order}&limit={limit}")]
    while pages[-1].json["has_more"]:
        pages.append(await listed(f"order={order}&limit={limit}&after={pages[-1].json['last_id']}"))

    assert [item for page in pages for item in ids(page)] == ids(await listed(f"order={order}"))
    assert [page.json["first_id"] for page in pages] == [ids(page)[0] for page in pages]
    assert [len(ids(page)) for page in pages[:-1]] == [limit] * (len(pages) - 1)


async def test_the_page_after_the_last_is_empty(listed):
    last = ids(await listed())[-1]

    page = await listed(f"order=asc&after={last}")

    assert page.json == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after")],
)
async def test_a_wrong_page_names_its_field(listed, query, param):
    page = await listed(query)

    assert (page.status_code, page.json["error"]["param"]) == (400, param)


async def test_items_of_every_kind_are_listed_whole(client, engine, services):
    """What a client left out, or sent as null, has the value that the API's types ask for."""
    engine.script = call("weather", {}, "call_1") + call("patch", {"input": ""}, "call_2") + stop()
    await client.post(input="Hello", tools=TOOLS)
    engine.script = say("Noted.")
    await client.post(previous_response_id="resp_1", input=SLOPPY)
    await calm(services)

    page = await ask(client, path="/v1/responses/resp_2/input_items?order=asc")

    assert [{key: item[key] for key in given} for item, given in zip(page.json["data"], WHOLE, strict=True)] == WHOLE
    assert all(isinstance(item["id"], str) for item in page.json["data"])


SLOPPY = [
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "ok"}]},
    {"type": "reasoning", "summary": None, "content": None, "encrypted_content": None},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Two", "annotations": None}]},
    {"type": "wonder", "output": ["as it came", 1]},
]
WHOLE = [
    {**SLOPPY[0], "status": "completed"},
    {**SLOPPY[1], "status": "completed"},
    {"type": "reasoning", "summary": []},
    {"type": "message", "role": "user", "status": "completed",
     "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]},
    {"type": "message", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "Two", "annotations": [], "logprobs": []}]},
    SLOPPY[5],
]  # fmt: skip


async def test_only_the_own_input_of_a_continuation_is_listed(client, services):
    await client.post(input="Hello")
    await client.post(input="And?", previous_response_id="resp_1")
    await calm(services)

    page = await ask(client, path="/v1/responses/resp_2/input_items")

    assert [item["content"][0]["text"] for item in page.json["data"]] == ["And?"]


# Deleted


async def traces(services):
    read = services.store._database.connection.cursor()
    return read.execute("SELECT path, event, response_id FROM traces ORDER BY ended_at").fetchall()


async def test_a_deleted_response_is_gone_from_every_table(client, services):
    await client.post(input="Hello")
    await ask(client)
    deleted = await ask(client, "DELETE")
    await calm(services)
    await services.store.sweep(NOW)

    continued = await client.post(input="And?", previous_response_id="resp_1")

    assert deleted.json == {"id": "resp_1", "object": "response.deleted", "deleted": True}
    assert (await ask(client)).status_code == 404
    assert (await ask(client, "DELETE")).status_code == 404
    assert (continued.status_code, continued.json["error"]["code"]) == (404, "previous_response_not_found")
    kept = await traces(services)
    assert len(kept) >= 3
    assert not [trace for trace in kept if "resp_1" in trace]
    assert not [trace for trace in kept if "resp_1" in trace[0]]


async def test_what_continued_a_deleted_response_can_be_read_and_not_continued(client, services):
    await client.post(input="Hello")
    await client.post(input="And?", previous_response_id="resp_1")
    await calm(services)
    await ask(client, "DELETE")

    assert (await ask(client, path="/v1/responses/resp_2")).status_code == 200
    assert (await client.post(input="And?", previous_response_id="resp_2")).status_code == 404


async def test_a_delete_waits_for_a_write_in_flight(client, services):
    puts = Gate(services.store, "put")
    await client.post(input="Hello")
    delete = client.call("DELETE", STORED)
    for _ in range(20):
        await asyncio.sleep(0)

    puts.opened.set()

    assert (await delete.reply()).status_code == 200
    assert isinstance(await services.store.row("resp_1", NOW), Missing)


async def test_a_row_that_takes_too_long_to_be_written_is_not_deleted_yet(client, services):
    services.settings = Settings(write_wait_ms=1)
    puts = Gate(services.store, "put")
    await client.post(input="Hello")

    assert (await ask(client, "DELETE")).status_code == 503
    puts.opened.set()
    await calm(services)
    assert (await ask(client, "DELETE")).status_code == 200


async def test_a_row_that_could_not_be_written_is_forgotten(client, services):
    services.store.put = await failed_write(client, services)

    deleted = await ask(client, "DELETE")
    services.writes.sweep()
    await calm(services)

    assert deleted.status_code == 200
    assert (await ask(client)).status_code == 404
    assert services.writes.known == {}
    assert isinstance(await services.store.row("resp_1", NOW), Missing)


async def test_of_two_deletes_one_finds_it(client, services):
    await client.post(input="Hello")
    await calm(services)

    calls = [client.call("DELETE", STORED) for _ in range(2)]

    assert sorted([(await call.reply()).status_code for call in calls]) == [200, 404]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", STORED, "DELETE, GET"), ("GET", f"{STORED}/cancel", "POST"), ("POST", f"{STORED}/input_items", "GET"),
     ("GET", "/v1/responses/input_tokens", "POST"), ("GET", "/v1/responses/compact", "POST")],
)  # fmt: skip
async def test_another_method_is_told_which_there_are(client, method, path, allowed):
    reply = await client.request(method, path, b"{}")

    assert reply.status_code == 405
    assert set(allowed.split(", ")) <= set(reply.headers["Allow"].split(", "))
