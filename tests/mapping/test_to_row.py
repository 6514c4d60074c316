"""What a row keeps is what a later turn reads, and retention is as the client asked."""

import msgspec
import pytest

from engine.scripted import stop, think
from handlers.settings import Settings
from storage.rows import Chain
from tests.doubles import MODEL, NOW, say


async def stored(client, services, **body):
    reply = await client.post(**{"input": "Hello", **body})
    assert reply.status_code == 200
    await services.writes.settled(reply.json["id"], 10)
    return (await services.store.chain(reply.json["id"], NOW)).rows[-1]


async def test_a_row_keeps_the_request_and_the_answer(client, engine, services):
    engine.script = say("Hi", " there")

    row = await stored(client, services, instructions="Be kind.", temperature=0.5, metadata={"a": "b"})

    assert (row.model, row.status, row.instructions) == (MODEL, "completed", "Be kind.")
    assert msgspec.json.decode(row.input_json) == [{"type": "message", "role": "user", "content": "Hello"}]
    assert msgspec.json.decode(row.output_json)[0]["content"][0]["text"] == "Hi there"
    assert msgspec.json.decode(row.usage_json)["total_tokens"] == 9
    config = msgspec.json.decode(row.config_json)
    assert (config["temperature"], config["metadata"]) == (0.5, {"a": "b"})
    assert (config["serverBootId"], type(config["modelInstanceId"])) == ("boot_1", int)


async def test_instructions_are_never_stored_as_input(client, engine, services):
    engine.script = say("Hi")

    first = await stored(client, services, instructions="Be kind.")
    second = await stored(client, services, previous_response_id=first.id)

    for row in (first, second):
        assert row.instructions == "Be kind."
        assert msgspec.json.decode(row.input_json) == [{"type": "message", "role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("metadata", "seconds"),
    [
        ({}, 604_800), (None, 604_800), ([], 604_800), ("retention_seconds", 604_800),
        ({"retention_seconds": None}, 604_800), ({"retention_seconds": 60}, 60),
        ({"retention_seconds": 7_776_000}, 7_776_000),
    ],
)  # fmt: skip
async def test_retention_is_stamped_on_the_row(client, engine, services, metadata, seconds):
    engine.script = say("Hi")

    row = await stored(client, services, metadata=metadata)

    assert row.expires_at == NOW + seconds


@pytest.mark.parametrize(("metadata", "seconds"), [(None, 100), ({"retention_seconds": 60}, 60)])
async def test_a_server_has_a_retention_of_its_own_that_a_request_overrides(
    client, engine, services, metadata, seconds
):
    engine.script = say("Hi")
    services.settings = Settings(retention_seconds=100)

    row = await stored(client, services, metadata=metadata)

    assert row.expires_at == NOW + seconds


async def test_retention_counts_from_the_end_of_a_long_answer(client, engine, services):
    engine.script = say("Hi")
    times = iter([NOW])
    services.clock = lambda: next(times, NOW + 70)

    reply = await client.post(input="Hello", metadata={"retention_seconds": 60})
    await services.writes.settled(reply.json["id"], 10)

    assert isinstance(await services.store.chain(reply.json["id"], NOW + 100), Chain)


async def test_an_incomplete_response_can_be_continued(client, engine):
    engine.script = say("Once upon", reason="length")
    first = await client.post(input="Tell a story.")

    second = await client.post(input="Go on.", previous_response_id=first.json["id"])

    assert second.status_code == 200
    assert [message["content"] for message in engine.conversations[-1]] == ["Tell a story.", "Once upon", "Go on."]


async def test_a_silent_turn_is_still_a_turn(client, engine):
    engine.script = say()
    first = await client.post(input="Be silent.")

    await client.post(input="Well?", previous_response_id=first.json["id"])

    assert [message["role"] for message in engine.conversations[-1]] == ["user", "assistant", "user"]


async def test_a_turn_of_reasoning_alone_comes_back_with_its_chain(client, engine):
    engine.script = think("Hm.") + stop()
    first = await client.post(input="Think.")

    await client.post(input="Well?", previous_response_id=first.json["id"])

    assert engine.conversations[-1] == [
        {"role": "user", "content": "Think."},
        {"role": "assistant", "content": "", "reasoning_content": "Hm."},
        {"role": "user", "content": "Well?"},
    ]


@pytest.mark.parametrize("roles", [("assistant", "user"), ("user", "assistant"), ("user", "user")])
async def test_a_chain_is_replayed_as_it_was_said_turn_by_turn(client, engine, roles):
    engine.script = say("Hi")
    first = await client.post(input="One")
    items = [{"role": role, "content": f"{role}."} for role in roles]

    second = await client.post(input=items, previous_response_id=first.json["id"])
    await client.post(input="Four", previous_response_id=second.json["id"])

    _, said, replayed = engine.conversations
    assert replayed == [*said, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Four"}]


async def test_store_false_keeps_nothing(client, engine):
    engine.script = say("Hi")
    first = await client.post(input="Hello", store=False)

    second = await client.post(input="And?", previous_response_id=first.json["id"])

    assert (first.json["store"], second.status_code) == (False, 404)


@pytest.mark.parametrize(
    ("second", "third", "heard"),
    [
        ({}, {}, "Be kind."),
        ({"instructions": "Be brief."}, {}, "Be brief."),
        ({"instructions": ""}, {}, ""),
        ({}, {"instructions": ""}, ""),
    ],
)
async def test_instructions_are_inherited_replaced_or_emptied(client, engine, second, third, heard):
    engine.script = say("Hi")
    first = await client.post(input="One", instructions="Be kind.")

    reply = await client.post(input="Two", previous_response_id=first.json["id"], **second)
    reply = await client.post(input="Three", previous_response_id=reply.json["id"], **third)

    assert reply.json["instructions"] == heard
    leading = engine.conversations[-1][0]
    assert (leading["content"] if leading["role"] == "system" else "") == heard


@pytest.mark.parametrize(
    ("asked", "given"), [({}, (1, 1, 8191)), ({"temperature": 0, "top_p": 0, "max_output_tokens": 5}, (0, 0, 5))]
)
async def test_sampling_reaches_the_engine(client, engine, asked, given):
    engine.script = say("Hi")

    await client.post(input="Hello", **asked)

    sampling = engine.decodes[-1][1]
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == given


async def test_without_a_limit_the_context_is_the_limit(client, engine):
    engine.script = say("Hi")
    engine.context_length = 10

    await client.post(input="one two three")

    assert engine.decodes[-1][1].max_tokens == 7
