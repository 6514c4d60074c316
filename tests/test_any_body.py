"""Bodies that are wrong in every field: each gets the API's error shape, none a 5xx, none hangs."""

import json

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.scripted import ScriptedEngine
from handlers.app import create_app
from handlers.wire.request import CreateResponse
from storage.store import open_store
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
    store = open_store(":memory:")
    async with running(create_app(to_services(engine, store))) as client:
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

    assert reply.status_code == (200 if field in {"metadata", "text", "reasoning"} else 400)
    if reply.status_code == 400:
        assert reply.json["error"]["param"].startswith(field)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("text", {"verbosity": "loud"}, "text.verbosity"),
        ("text", {"format": {"type": "grammar"}}, "text.format"),
        ("text", {"format": {"type": "json_schema"}}, "text.format.name"),
        ("text", {"format": {"type": "json_schema", "name": "n", "schema": []}}, "text.format.schema"),
        ("tools", [{"type": "custom"}], "tools[0].name"),
        ("tool_choice", "required", "tool_choice"),
        ("reasoning", {"effort": "bogus"}, "reasoning.effort"),
        ("reasoning", {"summary": 5}, "reasoning.summary"),
        ("tools", [{}], "tools[0].type"),
        ("tools", [{"type": "web_search"}, {"type": "function", "name": 5}], "tools[1].name"),
        ("tools", ["look"], "tools[0]"),
        ("tool_choice", "sometimes", "tool_choice"),
        ("tool_choice", {"type": "none"}, "tool_choice.type"),
        ("tool_choice", {"type": "function", "name": "nowhere"}, "tool_choice"),
        ("tool_choice", {"type": "allowed_tools", "tools": [{}]}, "tool_choice.tools[0].type"),
        ("tools", [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}], "tools[0].tools[0].name"),
        ("truncation", "a - at `$.b", "truncation"),
        ("max_output_tokens", 10**30, "max_output_tokens"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("top_logprobs", 21, "top_logprobs"),
        ("prompt_cache_key", "k" * 65, "prompt_cache_key"),
        ("model", "m" * 257, "model"),
    ],
)
async def test_a_value_that_is_out_of_range_is_named_by_its_path(app, field, value, param):
    reply = await app.post(**{"input": "Hello", field: value})

    assert (reply.status_code, reply.json["error"]["param"]) == (400, param)


@pytest.mark.asyncio(loop_scope="module")
async def test_nesting_that_schemas_need_is_served(app):
    deep = {"type": "object"}
    for _ in range(45):
        deep = {"properties": deep}

    reply = await app.post(input="Hello", tools=[{"type": "function", "name": "look", "parameters": deep}])

    assert reply.status_code == 200
    assert reply.json["tools"][0]["parameters"] == deep


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("depth", "status"), [(99, 200), (100, 400), (900, 400), (100_000, 400)])
async def test_deep_nesting_is_refused(app, depth, status):
    body = b'{"model": "%s", "input": "Hello [", "metadata": %s1%s}'
    body %= (MODEL.encode(), b"[" * depth, b"]" * depth)

    reply = await app.request("POST", "/v1/responses", body)

    assert reply.status_code == status
    if status != 200:
        assert reply.json["error"]["message"] == ("Invalid value for `body`: it is nested more than 100 levels deep.")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "c", "name": "f"},
        {"role": "assistant", "content": "Forty characters of what was said. So."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "user", "content": "Hi"},
    ],
)
async def test_very_many_items_are_folded_in_one_pass(app, item):
    reply = await app.post(input=[item] * 60_000)

    assert reply.status_code in {200, 400}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("arguments", ["[" * 5000, "[" * 900 + "]" * 900, "[" * 101 + "]" * 101])
async def test_arguments_nested_too_deep_are_named(app, arguments):
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}

    reply = await app.post(input=[call, {"type": "function_call_output", "call_id": "c", "output": "x"}])

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "input[0].arguments")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("value", [None, True, 5, "x", ["x"], {"x": {"y": 1}}])
async def test_fields_nobody_knows_are_ignored(app, value):
    fields = ("client_metadata", "user", "moderation", "stream_options", "context_management", "prompt_cache_options")

    reply = await app.post(input="Hello", **dict.fromkeys(fields, value))

    assert reply.status_code == 200
    assert not set(fields) & reply.json.keys()
