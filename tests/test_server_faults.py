"""What no client can help: a store or a row that cannot be read, rows of another process, a model that dies."""

import pytest

from engine.errors import EngineError
from handlers.app import create_app
from handlers.settings import Settings
from storage.errors import ReadError
from tests.asgi import running
from tests.doubles import to_services
from tests.world import STRAY, World


async def test_a_fault_of_the_store_is_the_servers_whatever_its_words_are(client, services):
    async def break_off(*_):
        raise ReadError("Response not found: resp_stray")

    services.store.chain = break_off

    reply = await client.post(**STRAY)

    assert (reply.status_code, reply.json["error"]["type"]) == (500, "server_error")


@pytest.mark.parametrize("output", ["{", "[1]", "[{}]", '[{"type": "compaction"}]', '[{"type": "message"}]'])
async def test_a_stored_row_that_cannot_be_read_is_the_servers_fault(engine, store, output):
    services = to_services(engine, store)
    async with running(create_app(services)) as client:
        reply = await World(client, services, engine).continued(output_json=output)

    assert (reply.status_code, reply.json["error"]["param"]) == (500, "previous_response_id")
    assert reply.json["error"]["message"].startswith("Failed to retrieve previous response:")


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ('{"modelInstanceId": 999999, "serverBootId": "boot_1"}', 400),
        ('{"modelInstanceId": 999999, "serverBootId": "boot_0"}', 200),
        ('{"modelInstanceId": 999999.0}', 200),
        ('{"modelInstanceId": "1", "serverBootId": "boot_0"}', 400),
    ],
)
async def test_instances_are_compared_within_one_server_process_only(engine, store, config, status):
    services = to_services(engine, store)
    async with running(create_app(services)) as client:
        reply = await World(client, services, engine).continued(config_json=config)

    assert reply.status_code == status


async def test_a_last_look_that_cannot_read_is_the_servers_fault(client, services):
    async def break_off(*_):
        raise ReadError

    services.settings = Settings(write_wait_ms=1)
    services.writes.reserve("resp_stray", None)
    services.store.chain = break_off

    reply = await client.post(**STRAY)

    assert (reply.status_code, reply.json["error"]["param"]) == (500, "previous_response_id")


async def test_a_reference_to_a_row_that_cannot_be_read_is_the_servers_fault(client, services):
    async def break_off(*_):
        raise ReadError

    services.store.row = break_off

    reply = await client.post(input=[{"type": "item_reference", "id": "rs_stray00"}])

    assert (reply.status_code, reply.json["error"]["code"]) == (500, None)


async def test_a_model_that_dies_before_the_prompt_is_made_is_a_503(client, engine):
    async def die(*_):
        raise EngineError("The engine's thread died.")

    engine.tokenize = die

    reply = await client.post(input="Hello")

    assert (reply.status_code, reply.json["error"]["code"]) == (503, "model_unavailable")


async def test_a_model_that_dies_before_the_grammar_is_made_is_a_503(client, engine):
    async def die(*_):
        raise EngineError("The engine's thread died.")

    engine.constrain = die

    reply = await client.post(input="Hello", text={"format": {"type": "json_object"}})

    assert (reply.status_code, reply.json["error"]["code"]) == (503, "model_unavailable")
