"""POST /v1/responses/input_tokens: the tokens of the prompt that a request would have."""

import json

import pytest

from tests.doubles import MODEL, say

ITEMS = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]


def count(client, **body):
    return client.request("POST", "/v1/responses/input_tokens", json.dumps({"model": MODEL, **body}).encode())


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"input": "one two three"}, 3),
        ({"input": ITEMS}, 3),
        ({"input": "one", "instructions": "two three"}, 3),
        ({"input": "one", "background": True, "store": False, "stream": True}, 1),
    ],
)
async def test_the_prompt_is_counted_and_the_model_not_asked(client, engine, body, tokens):
    reply = await count(client, **body)

    assert reply.json == {"object": "response.input_tokens", "input_tokens": tokens}
    assert engine.decodes == []


async def test_a_chain_counts_with_what_it_continues_with_and_without_more_input(client, engine):
    engine.script = say("three")
    await client.post(input="one two")

    more = await count(client, input="four", previous_response_id="resp_1")
    alone = await count(client, previous_response_id="resp_1")

    assert (more.json["input_tokens"], alone.json["input_tokens"]) == (4, 3)


async def test_tools_are_shown_to_the_template(client, engine):
    await count(client, input="one", tools=[{"type": "function", "name": "look", "parameters": {}}])

    assert engine.tools_templated[-1]


async def test_a_prompt_too_long_to_be_answered_is_counted(client, engine):
    engine.context_length = 2

    assert (await count(client, input="one two three")).json["input_tokens"] == 3


async def test_a_full_queue_is_none_of_its_business(client, services):
    slots = services.models[MODEL].slots
    while slots.take():
        pass

    assert (await count(client, input="one")).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": "one", "model": None}, 400, "model"),
        ({"input": "one", "model": "other"}, 404, "model"),
        ({"input": "one", "temperature": "x"}, 400, "temperature"),
        ({"previous_response_id": "resp_x"}, 404, "previous_response_id"),
    ],
)
async def test_what_cannot_be_asked_cannot_be_counted(client, body, status, param):
    reply = await count(client, **body)

    assert (reply.status_code, reply.json["error"]["param"]) == (status, param)


async def test_nothing_is_stored(client):
    await count(client, input="one")

    assert (await client.request("GET", "/v1/responses/resp_1")).status_code == 404
