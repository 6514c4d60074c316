"""Every refusal: its reply, and that the model was not asked."""

import asyncio
from functools import partial
from typing import Any

import pytest

from engine.errors import DecodeError, GrammarError, TemplateError
from engine.scripted import ScriptedEngine, call, stop
from handlers.app import create_app
from handlers.settings import Settings
from machines.exchange import REFUSALS
from storage.errors import ReadError, WriteError
from tests.asgi import running
from tests.doubles import MODEL, NOW, say, to_services, watch
from tests.world import STRAY, World


async def _token_absent(world):
    return await world.client.request("GET", "/v1/models")


async def _token_wrong(world):
    return await world.client.request("GET", "/v1/models", authorization="Bearer guess")


async def _host_foreign(world):
    return await world.client.request("GET", "/v1/models", host="evil.example:8080")


async def _origin_foreign(world):
    return await world.client.request("GET", "/v1/models", origin="https://evil.example")


async def _route_unknown(world):
    return await world.client.request("GET", "/v1/nowhere")


async def _trace_unknown(world):
    return await world.client.request("GET", "/interlock/exchanges/ex_stray")


async def _query_invalid(world):
    return await world.client.request("GET", "/interlock/exchanges?since=yesterday")


async def _diagram_unknown(world):
    return await world.client.request("GET", "/interlock/diagrams/dishwasher.svg")


async def _method_not_allowed(world):
    return await world.client.request("GET", "/v1/responses")


async def _request_malformed(world):
    return await world.send(b"{}", **{"Content-Length": "two"})


async def _body_too_large(world):
    return await world.send(b"[" + b" " * world.services.settings.max_body_bytes)


async def _json_invalid(world):
    return await world.send(b'{"model": ')


async def _body_not_object(world):
    return await world.send(b"[]")


async def _model_missing(world):
    return await world.send(b'{"input": "Hello"}')


async def _input_missing(world):
    return await world.post()


async def _input_mistyped(world):
    return await world.post(input={"role": "user"})


async def _input_empty(world):
    return await world.post(input=[])


async def _input_too_long(world):
    world.services.settings = Settings(max_input_items=2)
    return await world.post(input=[{"role": "user", "content": "Hi"}] * 3)


async def _retention_invalid(world):
    return await world.post(input="Hello", metadata={"retention_seconds": 59})


async def _field_invalid(world):
    return await world.post(input="Hello", temperature="warm")


async def _field_unsupported(world):
    return await world.post(input="Hello", background=True, store=False)


async def _model_unknown(world):
    return await world.post(model="gpt-5", input="Hello")


async def _model_loading(world):
    world.services.models.register("slow", ScriptedEngine())
    return await world.post(model="slow", input="Hello")


async def _model_broken(world):
    world.engine.healthy = False
    return await world.post(input="Hello")


async def _store_absent(world):
    world.services.store = None
    return await world.post(**STRAY)


async def _chain_unknown(world):
    return await world.post(**STRAY)


async def _chain_unreadable(world):
    world.services.store.chain = break_with(ReadError)
    return await world.post(**STRAY)


async def _identity_unreadable(world):
    return await world.continued(config_json="{")


async def _identity_absent(world):
    return await world.continued(config_json="{}")


async def swap(models):
    """Put another model object in the place of the scripted one."""
    await models.register(MODEL, ScriptedEngine()).load()


async def _binding_changed(world):
    read = world.services.store.chain

    async def swap_meanwhile(*arguments):
        await swap(world.services.models)
        return await read(*arguments)

    world.services.store.chain = swap_meanwhile
    return await world.post(**STRAY)


async def _instance_changed(world):
    first = await world.post(input="Hello")
    await swap(world.services.models)
    world.engine.decodes.clear()
    return await world.post(input="And?", previous_response_id=first.json["id"])


async def _write_unsettled(world):
    world.services.settings = Settings(write_wait_ms=1)
    world.services.writes.reserve("resp_stray", None)
    return await world.post(**STRAY)


async def _template_refused(world):
    async def refuse(*_: Any) -> None:
        raise TemplateError("Conversation roles must alternate")

    world.engine.tokenize = refuse
    return await world.post(input="Hello")


async def _prompt_too_long(world):
    world.engine.context_length = 3
    return await world.post(input="one two three")


async def _queue_full(world):
    slots = world.services.models[MODEL].slots
    for _ in range(slots.limit + 1):
        slots.take()
    return await world.post(input="Hello")


TOOLS = [{"type": "function", "name": "weather", "parameters": {}}]


async def called(world, items, *calls):
    """Continue a response that called tools."""
    world.engine.script = [piece for call_id in calls for piece in call("weather", "{}", call_id)] + stop()
    first = await world.post(input="Weather?", tools=TOOLS)
    world.engine.decodes.clear()
    return await world.post(input=items, tools=TOOLS, previous_response_id=first.json["id"])


def answer(call_id, text="Fine."):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def echo(call_id):
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"}


async def _model_renamed(world):
    return await world.continued(model="another", config_json='{"modelInstanceId": 1, "serverBootId": "boot_0"}')


async def _chain_too_deep(world):
    world.services.settings = Settings(max_chain_depth=1)
    first = await world.post(input="One")
    second = await world.post(input="Two", previous_response_id=first.json["id"])
    world.engine.decodes.clear()
    return await world.post(input="Three", previous_response_id=second.json["id"])


async def _chain_cyclic(world):
    return await world.continued(ancestors=("resp_1", "resp_1"))


def start_endless(world):
    world.services.writes.reserve("resp_stray", NOW + 1000)
    return world.services.writes.start("resp_stray", asyncio.Event().wait)


async def _write_wedged(world):
    write = start_endless(world)
    world.services.writes.trip(write)
    return await world.post(**STRAY)


async def _chain_expired(world):
    world.services.settings = Settings(write_wait_ms=1)
    start_endless(world)
    world.services.clock = lambda: NOW + 1000
    return await world.post(**STRAY)


async def _image_refused(world):
    world.services.settings = Settings(images="refuse")
    part = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    return await world.post(input=[{"role": "user", "content": [{"type": "input_text", "text": "What?"}, part]}])


async def _reference_unknown(world):
    return await world.post(input=[{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "rs_stray00"}])


async def _choice_unknown(world):
    return await world.post(input="Hi", tools=TOOLS, tool_choice={"type": "function", "name": "time"})


async def _echo_unknown(world):
    return await called(world, [echo("call_x"), answer("call_1")], "call_1")


async def _call_id_missing(world):
    return await world.post(input=[answer("")])


async def _output_unexpected(world):
    return await called(world, [answer("call_1")])


async def _outputs_scattered(world):
    return await called(
        world, [answer("call_1"), {"role": "user", "content": "And?"}, answer("call_2")], "call_1", "call_2"
    )


async def _calls_unresolved(world):
    return await called(world, "Never mind.", "call_1", "call_2")


async def _output_duplicated(world):
    return await called(world, [answer("call_1"), answer("call_1")], "call_1", "call_2")


async def _output_unknown(world):
    return await called(world, [answer("call_x")], "call_1")


async def _outputs_missing(world):
    return await called(world, [answer("call_2")], "call_1", "call_2")


async def _history_malformed(world):
    return await world.post(input=[echo("call_1"), {"role": "user", "content": "And?"}])


async def _job_unstored(world):
    world.services.store.begin_job = break_with(WriteError)
    return await world.post(input="Hello", background=True)


async def _job_under_way(world):
    world.services.models[MODEL].slots.take()
    await world.post(input="Hello", background=True)
    return await world.post(input="And?", previous_response_id="resp_1")


def break_with(error):
    async def break_off(*_: Any) -> None:
        raise error

    return break_off


async def shown(world, method="GET", ending=""):
    return await world.client.request(method, f"/v1/responses/resp_stray{ending}")


async def _response_unknown(world):
    return await shown(world)


async def _response_unsettled(world):
    world.services.settings = Settings(write_wait_ms=1)
    world.services.writes.reserve("resp_stray", None)
    return await shown(world)


async def _response_unreadable(world):
    world.services.store.row = break_with(ReadError)
    return await shown(world)


async def stored(world):
    """Have a response stored that was not made in the background, and forget that the model was asked for it."""
    await world.post(input="Hello")
    assert await world.services.writes.settled("resp_1", 10)
    world.engine.decodes.clear()


async def _response_undeleted(world):
    await stored(world)
    world.services.store.delete = break_with(WriteError)
    return await world.client.request("DELETE", "/v1/responses/resp_1")


async def _not_background(world):
    await stored(world)
    return await world.client.request("POST", "/v1/responses/resp_1/cancel")


async def _server_stopping(world):
    world.services.is_stopping = True
    return await world.post(input="Hello")


async def _crashed(world):
    world.services.clock = None
    return await world.post(input="Hello")


async def _schema_invalid(world):
    world.engine.grammar_error = GrammarError("Invalid type: strng")
    schema = {"type": "strng"}
    return await world.post(input="Hello", text={"format": {"type": "json_schema", "name": "a", "schema": schema}})


async def _definition_invalid(world):
    world.engine.grammar_error = GrammarError("no start rule found", "patch")
    form = {"type": "grammar", "syntax": "lark", "definition": "begin: /a/"}
    return await world.post(input="Hello", tools=[{"type": "custom", "name": "patch", "format": form}])


PROVOKE = {name.removeprefix("_"): function for name, function in list(globals().items()) if name[1:] in REFUSALS}


SPOKEN = {"frame_unknown", "socket_expired"}  # what only a WebSocket is told: test_socket


@pytest.mark.parametrize("event", [event for event in REFUSALS if event not in SPOKEN])
async def test_a_refusal(engine, store, event, snapshot):
    tokens = {"default": "s3cret"} if event.startswith("token") else {}
    services = to_services(engine, store, Settings(max_body_bytes=1000, tokens=tokens))
    engine.script = say("Yes.")
    async with running(create_app(services)) as client:
        reply = await PROVOKE[event](World(client, services, engine))

    shown = {
        name: reply.headers[name] for name in ("Retry-After", "Allow", "Www-Authenticate") if name in reply.headers
    }
    assert reply.headers["X-Interlock-Exchange"].startswith("ex_")
    assert (reply.status_code, shown, reply.json) == snapshot
    assert engine.decodes == []


REFUSED_AT_ONCE = [
    "input_empty", "field_invalid", "model_unknown", "chain_unknown", "write_unsettled", "reference_unknown",
    "call_id_missing", "history_malformed", "template_refused", "prompt_too_long", "schema_invalid", "queue_full",
]  # fmt: skip


@pytest.mark.parametrize("event", REFUSED_AT_ONCE)
async def test_a_stream_that_is_refused_never_begins(engine, store, event):
    services = to_services(engine, store)
    async with running(create_app(services)) as client:
        client.post = partial(client.post, stream=True)
        reply = await PROVOKE[event](World(client, services, engine))

    assert (reply.status_code, reply.headers["Content-Type"]) == (REFUSALS[event].status, "application/json")
    assert engine.decodes == []


@pytest.mark.parametrize("model", [None, "", 0, False, []])
async def test_a_model_that_names_nothing_is_missing(client, model):
    reply = await client.post(model=model, input="Hello")

    assert (reply.status_code, reply.json["error"]["message"]) == (400, "Missing required field: model")


@pytest.mark.parametrize("seconds", [59, 7_776_001, 0, -60, 60.5, "60", True, [], {"seconds": 60}])
async def test_a_retention_out_of_bounds_is_refused_in_the_words_that_clients_parse(client, engine, seconds):
    reply = await client.post(input="Hello", metadata={"retention_seconds": seconds})

    message = "metadata.retention_seconds must be an integer in [60, 7776000]"
    assert (reply.status_code, reply.json["error"]["message"]) == (400, message)
    assert engine.decodes == []


@pytest.mark.parametrize("call_id", [{}, {"call_id": None}, {"call_id": ""}])
@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
async def test_an_output_without_a_call_id_is_refused_in_the_same_words_however_it_lacks_it(client, kind, call_id):
    reply = await client.post(input=[{"type": kind, "output": "12:00", **call_id}])

    error = reply.json["error"]
    assert (reply.status_code, error["param"], error["message"]) == (400, "input", "tool message missing tool_call_id")


@pytest.mark.parametrize("call_id", [None, 1, [], {}, [[]]])
async def test_an_echo_whose_call_id_is_no_text_is_an_unknown_one(client, services, engine, call_id):
    world = World(client, services, engine)

    reply = await called(world, [{**echo("call_1"), "call_id": call_id}, answer("call_1")], "call_1")

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "input")
    assert "unknown call_id" in reply.json["error"]["message"]


async def test_an_output_that_was_given_before_is_not_expected_again(client, engine):
    engine.scripts.extend([call("weather", "{}", "call_1") + stop(), say("Rain.")])
    first = await client.post(input="Weather?", tools=TOOLS)
    second = await client.post(input=[answer("call_1")], previous_response_id=first.json["id"])
    engine.decodes.clear()

    again = await client.post(input=[answer("call_1")], previous_response_id=second.json["id"])
    forged = await client.post(input=[echo("call_1"), answer("call_1")], previous_response_id=second.json["id"])

    assert [reply.status_code for reply in (again, forged)] == [400, 400]
    assert "no outstanding tool call" in again.json["error"]["message"]
    assert "unknown call_id" in forged.json["error"]["message"]
    assert engine.decodes == []


async def test_the_log_gives_the_row_the_path_and_no_content(client, engine, caplog):
    engine.script = [DecodeError("broken")]
    caplog.set_level("INFO", "interlock")

    await client.post(input="A secret.")
    await client.post(input=[{"role": "narrator", "content": "A secret."}])
    await client.request("GET", "/nowhere\nFAKE LINE")

    lines = [record.getMessage() for record in caplog.records if record.name == "interlock.exchange"]
    failed, refused, unrouted = lines
    assert "model='scripted' response_id='resp_1': failed by failure_sent" in failed
    assert "decode_failed" in failed
    assert "refused by field_invalid 400" in refused
    assert "param='input[0].role'" in refused
    assert "\n" not in unrouted
    assert "secret" not in caplog.text


async def test_a_model_swapped_while_a_request_waits_is_told(client, services, engine):
    running = services.models[MODEL].slots.take()
    taken = watch(services.models[MODEL].slots, "take")
    call = client.start(input="Hello")
    await taken.wait()

    await swap(services.models)
    running.leave()
    await call.reply()

    assert (call.status_code, call.json["error"]["param"]) == (400, "model")
    assert engine.decodes == []
