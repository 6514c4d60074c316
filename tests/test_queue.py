"""Requests that meet at one model: one decodes, some wait in order, the rest is told to come back."""

import asyncio

import pytest

from engine.errors import DecodeError
from engine.scripted import Pause, ScriptedEngine
from tests.doubles import MODEL, say


async def test_of_eighteen_arrivals_behind_a_holder_two_are_refused_at_once_and_the_rest_is_served_in_order(
    client, engine
):  # fmt: skip
    pause = Pause()
    engine.scripts.append([pause, *say("Hi")])
    engine.script = say("Hi")
    holder = client.start(input="q", store=False)
    await pause.reached.wait()

    calls = [client.start(input=f"q{number}", store=False) for number in range(18)]
    refused = await asyncio.gather(*(call.reply() for call in calls[16:]))

    assert [reply.status_code for reply in refused] == [429, 429]
    assert not any(call.task.done() for call in [holder, *calls[:16]])
    pause.resume.set()
    served = await asyncio.gather(*(call.reply() for call in [holder, *calls[:16]]))
    assert {reply.status_code for reply in served} == {200}
    prompts = [prompt for prompt, _ in engine.decodes]
    assert len(prompts) == 17
    assert prompts == sorted(prompts)  # words are numbered as they are first seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_decode_that_breaks_frees_the_model_for_the_next(client, engine, services, stream):
    pause = Pause()
    engine.scripts.append([pause, DecodeError("out of memory")])
    engine.script = say("Hi")
    breaking = client.start(input="Hello", stream=stream)
    await pause.reached.wait()
    waiting = client.start(input="Hello")

    pause.resume.set()

    assert (await waiting.reply()).status_code == 200
    assert "server_error" in (await breaking.reply()).text
    slots = services.models[MODEL].slots
    assert (slots.running, slots.waiting) == (0, 0)


async def test_a_burst_at_a_model_that_loads_is_told_to_retry_and_nobody_waits(client, services):
    loading = services.models.register("slow", ScriptedEngine())

    replies = await asyncio.gather(*(client.post(model="slow", input="Hello") for _ in range(20)))

    assert {(reply.status_code, reply.json["error"]["code"]) for reply in replies} == {(503, "model_loading")}
    assert (loading.leases, loading.slots.waiting) == (0, 0)
