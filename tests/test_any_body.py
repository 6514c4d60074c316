"""Bodies that are wrong in every field: each gets the API's error shape, none a 5xx, none hangs."""

import json

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.scripted import ScriptedEngine
from handlers.app import create_app
from handlers.wire.request import CreateResponse
from tests.asgi import running
from tests.doubles import MODEL, say, to_services

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
roles = st.sampled_from(["user", "assistant", "system", "developer", "tool", ""])
kinds = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "input_text", "output_text",
                         "summary_text", "refusal", "input_image", "item_reference", "compaction"])  # fmt: skip
part = st.fixed_dictionaries({}, optional={"type": kinds | anything, "text": anything, "refusal": anything})
item = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds | anything, "role": roles | anything, "content": st.lists(part) | anything, "id": anything,
        "call_id": anything, "name": anything, "arguments": anything, "output": st.lists(part) | anything,
        "summary": st.lists(part) | anything, "status": anything, "phase": anything,
    },
)  # fmt: skip
sensible = {
    "model": st.just(MODEL), "input": st.just("Hello") | st.lists(item | anything, max_size=4),
    "stream": st.booleans(), "store": st.booleans(),
    "metadata": st.dictionaries(st.just("retention_seconds"), anything),
    "tools": st.lists(st.dictionaries(st.sampled_from(["type", "name", "parameters"]), anything)),
}  # fmt: skip
bodies = st.fixed_dictionaries(
    {name: sensible[name] | anything for name in ("model", "input")},
    optional={name: sensible.get(name, anything) | anything for name in CreateResponse.__struct_fields__[2:]},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app():
    engine = ScriptedEngine()
    engine.script = say("Yes.")
    async with running(create_app(to_services(engine, None))) as client:
        yield client


@pytest.mark.asyncio(loop_scope="module")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies | anything)
async def test_any_json_is_answered_or_refused_in_the_apis_shape(app, body):
    reply = await app.request("POST", "/v1/responses", json.dumps(body).encode())

    assert reply.status_code in {200, 400, 404}
    if reply.status_code != 200:
        assert set(reply.json["error"]) == {"message", "type", "param", "code"}
        assert reply.json["error"]["message"]


@pytest.mark.asyncio(loop_scope="module")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=64))
async def test_any_bytes_are_answered_or_refused(app, body):
    reply = await app.request("POST", "/v1/responses", body)

    assert reply.status_code == 400


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("field", CreateResponse.__struct_fields__)
async def test_a_field_of_the_wrong_type_is_named(app, field):
    """Fields of any type (metadata) pass; the rest are named by path."""
    reply = await app.post(**{"input": "Hello", field: {"not": ["this"]}})

    if field == "metadata":
        assert reply.status_code == 200
    elif field not in {"tool_choice", "text", "reasoning"}:
        assert reply.status_code == 400
        assert reply.json["error"]["param"] == field


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("depth", [99, 101, 900, 100_000])
async def test_deep_nesting_is_refused(app, depth):
    body = b'{"model": "%s", "input": "Hello", "tools": [{"x": %s1%s}]}'
    body %= (MODEL.encode(), b"[" * depth, b"]" * depth)

    reply = await app.request("POST", "/v1/responses", body)

    assert reply.status_code == 400
