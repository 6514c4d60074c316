"""WebSocket on /v1/responses, as Open Responses 2026-04-24 has it: frames in, the events of a stream out."""

import asyncio
import json

import pytest
from falcon.errors import WebSocketDisconnected
from falcon.testing import ASGIConductor

from engine.errors import DecodeError
from engine.scripted import Pause, call, stop
from handlers.app import create_app
from handlers.settings import Settings
from tests.asgi import running
from tests.doubles import MODEL, say, to_services
from tests.openapi import wire
from tests.sequences.laws import assert_laws

LOCAL = "localhost"
TERMINALS = {"response.completed", "response.incomplete", "response.failed", "error"}


class Talk:
    """One connection, and what was heard over it."""

    def __init__(self, ws) -> None:
        self.ws = ws

    async def send(self, **body) -> None:
        await self.ws.send_text(json.dumps({"type": "response.create", "model": MODEL, **body}))

    async def hear(self) -> list[dict]:
        events = []
        while not events or events[-1]["type"] not in TERMINALS:
            events.append(json.loads(await self.ws.receive_text()))
            (wire.check_socket_error if events[-1]["type"] == "error" else wire.check_event)(events[-1])
        return events

    async def ask(self, **body) -> dict:
        """Send a request and give its last event."""
        await self.send(**body)
        return (await self.hear())[-1]


@pytest.fixture
async def conductor(services):
    async with ASGIConductor(create_app(services)) as conductor:
        await services.models.settled()
        yield conductor


@pytest.fixture
async def talk(conductor):
    async with conductor.simulate_ws("/v1/responses", host=LOCAL) as ws:
        yield Talk(ws)


async def test_a_frame_is_answered_by_the_events_of_a_stream(talk, engine):
    engine.script = say("Hel", "lo")

    await talk.send(input="Hi")
    events = await talk.hear()

    assert_laws(events)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"


async def test_stream_and_background_have_no_meaning_here(talk, engine):
    engine.script = say("Hello")

    last = await talk.ask(input="Hi", stream=False, background=True)

    assert last["type"] == "response.completed"
    assert last["response"]["background"] is False


async def test_responses_come_one_after_another_in_the_order_of_their_frames(talk, engine):
    engine.scripts.extend([say("one"), say("two")])

    await talk.send(input="first")
    await talk.send(input="second")

    heard = [(await talk.hear())[-1]["response"]["output"][0]["content"][0]["text"] for _ in range(2)]
    assert heard == ["one", "two"]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_response_can_be_continued_over_the_connection_stored_or_not(talk, engine, stored):
    engine.script = say("Hello")
    first = await talk.ask(input="code word heron", store=stored)

    second = await talk.ask(input="and?", store=stored, previous_response_id=first["response"]["id"])

    assert second["type"] == "response.completed"
    assert [turn["content"] for turn in engine.conversations[-1]] == ["code word heron", "Hello", "and?"]


async def test_a_long_chain_of_unstored_responses_is_followed_to_its_start(talk, engine):
    engine.script = say("ok")
    last = None
    for number in range(5):
        last = (await talk.ask(input=f"turn {number}", store=False, previous_response_id=last))["response"]["id"]

    assert [turn["content"] for turn in engine.conversations[-1] if turn["role"] == "user"] == [
        f"turn {number}" for number in range(5)
    ]


async def test_an_unstored_response_is_unknown_to_another_connection_which_goes_on(conductor, engine):
    engine.script = say("Hello")
    async with conductor.simulate_ws("/v1/responses", host=LOCAL) as ws:
        first = await Talk(ws).ask(input="Hi", store=False)

    async with conductor.simulate_ws("/v1/responses", host=LOCAL) as ws:
        talk = Talk(ws)
        refused = await talk.ask(input="and?", store=False, previous_response_id=first["response"]["id"])
        fresh = await talk.ask(input="Hi again", store=False)

    assert (refused["type"], refused["status"]) == ("error", 404)
    assert refused["error"]["code"] == "previous_response_not_found"
    assert fresh["type"] == "response.completed"


async def test_a_refusal_in_a_frame_has_the_headers_that_it_has_over_http(talk, services):
    refused = await talk.ask(model="nobody", input="Hi")
    services.is_stopping = True
    stopping = await talk.ask(input="Hi")

    assert refused["headers"] == {"X-Interlock-Exchange": "ex_1"}
    assert stopping["headers"] == {"X-Interlock-Exchange": "ex_2", "Retry-After": "5"}


async def test_a_continuation_that_failed_is_forgotten(talk, engine):
    engine.script = call("weather", "{}", "call_1") + stop()
    first = await talk.ask(input="Hi", store=False)
    stray = {"type": "function_call_output", "call_id": "call_other", "output": "x"}

    refused = await talk.ask(input=[stray], store=False, previous_response_id=first["response"]["id"])
    again = await talk.ask(input="Hi", store=False, previous_response_id=first["response"]["id"])

    assert (refused["type"], refused["status"]) == ("error", 400)
    assert again["error"]["code"] == "previous_response_not_found"


async def test_a_continuation_whose_decode_broke_is_forgotten_too(talk, engine):
    engine.script = say("Hello")
    first = (await talk.ask(input="Hi", store=False))["response"]["id"]
    engine.script = [DecodeError("No.")]

    failed = await talk.ask(input="and?", store=False, previous_response_id=first)
    again = await talk.ask(input="and?", store=False, previous_response_id=first)

    assert failed["type"] == "response.failed"
    assert again["error"]["code"] == "previous_response_not_found"


async def test_a_prewarm_takes_the_prompt_up_and_says_nothing(talk, engine):
    engine.script = say("never", "heard")
    await talk.send(input=[{"role": "developer", "content": "Be brief."}], generate=False, store=False)
    events = await talk.hear()
    engine.script = say("Hello")

    turn = await talk.ask(input="Hi", store=False, previous_response_id=events[-1]["response"]["id"])

    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert events[-1]["response"]["output"] == []
    assert events[-1]["response"]["usage"]["output_tokens"] == 0
    assert engine.decodes[0][1].max_tokens == 1
    assert turn["response"]["output"][0]["content"][0]["text"] == "Hello"
    assert [turn["role"] for turn in engine.conversations[-1]] == ["system", "user"]


A_CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
ITS_OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "Rain"}


async def prewarm(talk):
    return (await talk.ask(input=[{"role": "developer", "content": "Be brief."}], generate=False, store=False))[
        "response"
    ]["id"]


async def test_what_goes_on_from_a_prewarm_may_tell_of_calls_of_an_earlier_connection(talk, engine):
    """A coding agent that is resumed takes its instructions up, and then sends the whole conversation so far."""
    engine.script = say("Hello")
    told = [{"role": "user", "content": "Look."}, A_CALL, ITS_OUTPUT, {"role": "user", "content": "And?"}]

    turn = await talk.ask(input=told, store=False, previous_response_id=await prewarm(talk))

    assert turn["type"] == "response.completed", turn
    assert [turn["role"] for turn in engine.conversations[-1]] == ["system", "user", "assistant", "tool", "user"]


@pytest.mark.parametrize("told", [[ITS_OUTPUT], [A_CALL], [A_CALL, {"role": "user", "content": "And?"}]])
async def test_calls_and_outputs_must_fit_together_after_a_prewarm_too(talk, engine, told):
    engine.script = say("Hello")

    refused = await talk.ask(input=told, store=False, previous_response_id=await prewarm(talk))

    assert (refused["status"], refused["error"]["code"]) == (400, "history_malformed")


async def test_over_http_generate_is_a_field_nobody_knows(client, engine):
    engine.script = say("Hello")

    assert (await client.post(input="Hi", generate=False)).json["output"]


@pytest.mark.parametrize(
    ("frame", "status", "param"),
    [
        ("{", 400, None),
        ("[]", 400, "body"),
        ('"response.create"', 400, "body"),
        ("{}", 400, "type"),
        ('{"type": "response.cancel"}', 400, "type"),
        ('{"type": ["response.create"]}', 400, "type"),
        ('{"type": "response.create"}', 400, "model"),
        (json.dumps({"type": "response.create", "model": "nobody", "input": "Hi"}), 404, "model"),
        (json.dumps({"type": "response.create", "model": MODEL, "input": 7}), 400, "input"),
        ("", 400, None),
    ],
)
async def test_a_frame_that_cannot_be_served_is_refused_in_a_frame_and_the_connection_stays(
    talk, engine, frame, status, param
):
    await talk.ws.send_text(frame)
    refused = (await talk.hear())[-1]
    engine.script = say("Hello")

    assert (refused["type"], refused["status"], refused["error"]["param"]) == ("error", status, param)
    assert set(refused["error"]) == {"type", "code", "message", "param"}
    assert (await talk.ask(input="Hi"))["type"] == "response.completed"


async def test_a_binary_frame_is_refused(talk):
    await talk.ws.send_data(b"\x00")

    assert (await talk.hear())[-1]["status"] == 400


async def test_a_client_that_leaves_frees_its_slot(conductor, engine, services):
    pause = Pause()
    engine.script = [pause, *say("never")]
    async with conductor.simulate_ws("/v1/responses", host=LOCAL) as ws:
        await Talk(ws).send(input="Hi")
        await pause.reached.wait()

    await asyncio.gather(*services.running)
    assert services.models[MODEL].slots.running == 0
    assert engine.cancelled == 1


@pytest.mark.parametrize("written", range(5))
async def test_a_connection_that_is_lost_while_it_is_written_to_frees_its_slot(services, engine, pause, ended, written):
    """Some transports raise once the connection is lost, and ASGI servers let that out."""
    frames, sent = asyncio.Queue(), []
    frames.put_nowait({"type": "websocket.connect"})
    asked = {"type": "response.create", "model": MODEL, "input": "Hi"}
    frames.put_nowait({"type": "websocket.receive", "text": json.dumps(asked)})

    async def send(message):
        if len(sent) > written:
            raise RuntimeError("the handler is closed")
        sent.append(message)

    scope = {
        "type": "websocket", "asgi": {"version": "3.0"}, "path": "/v1/responses", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost")], "subprotocols": [], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    async with running(create_app(services)) as client:
        await client.app(scope, frames.get, send)
        await asyncio.gather(*services.running)
        assert services.models[MODEL].slots.running == 0

    assert [(exchange.state.name, exchange.event) for exchange in ended] == [("ABANDONED", "client_gone")]


async def test_a_stopping_server_lets_the_response_end_and_then_closes(conductor, engine, services):
    pause = Pause()
    engine.script = [pause, *say("Hello")]
    async with conductor.simulate_ws("/v1/responses", host=LOCAL) as ws:
        talk = Talk(ws)
        await talk.send(input="Hi")
        await pause.reached.wait()
        conductor.app.begin_drain(60)
        pause.resume.set()

        assert (await talk.hear())[-1]["type"] == "response.completed"
        with pytest.raises(WebSocketDisconnected):
            await ws.receive_text()
        assert ws.close_code == 1001


async def test_a_connection_that_has_lasted_long_enough_is_told_so_and_closed(engine, store):
    services = to_services(engine, store, Settings(socket_seconds=0.01))
    async with (
        ASGIConductor(create_app(services)) as conductor,
        conductor.simulate_ws("/v1/responses", host=LOCAL) as ws,
    ):
        last = (await Talk(ws).hear())[-1]
        with pytest.raises(WebSocketDisconnected):
            await ws.receive_text()

    assert last["error"]["code"] == "websocket_connection_limit_reached"


async def test_more_frames_than_may_wait_close_the_connection(talk, engine):
    engine.script = [Pause()]
    while not talk.ws.closed:
        await talk.send(input="Hi")

    assert talk.ws.close_code == 1008


@pytest.mark.parametrize("path", ["/v1/other", "/health", "/v1/models"])
async def test_a_websocket_elsewhere_is_turned_away(conductor, path):
    with pytest.raises(WebSocketDisconnected):
        async with conductor.simulate_ws(path, host=LOCAL):
            pass


@pytest.mark.parametrize(
    "page", [{"host": "evil.example"}, {"host": LOCAL, "headers": {"Origin": "http://evil.example"}}]
)
async def test_a_page_from_elsewhere_is_turned_away(conductor, page):
    with pytest.raises(WebSocketDisconnected):
        async with conductor.simulate_ws("/v1/responses", **page):
            pass


async def test_with_tokens_a_websocket_needs_one(engine, store):
    services = to_services(engine, store, Settings(tokens={"anna": "secret"}))
    engine.script = say("Hello")
    async with ASGIConductor(create_app(services)) as conductor:
        await services.models.settled()
        with pytest.raises(WebSocketDisconnected):
            async with conductor.simulate_ws("/v1/responses", host=LOCAL):
                pass
        async with conductor.simulate_ws("/v1/responses", headers={"Authorization": "Bearer secret"}) as ws:
            assert (await Talk(ws).ask(input="Hi"))["type"] == "response.completed"

    assert engine.owners == ["anna"]
