"""What a response says of the request it answers."""

from tests.doubles import say


async def test_the_effort_of_reasoning_is_taken_and_echoed(client, engine):
    engine.script = say("Hi")

    reply = await client.post(input="Hello", reasoning={"effort": "low"})

    assert (reply.status_code, reply.json["reasoning"]) == (200, {"effort": "low", "summary": None})
