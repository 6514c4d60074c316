"""What the tests of background responses ask, and how they read what comes."""

import asyncio

from tests.durable import calm
from tests.sequences.laws import to_events

JOB = "/v1/responses/resp_1"
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def background(client, **body):
    return client.start(input="Hello", background=True, **body)


def ask(client, method="GET", path=JOB):
    return client.request(method, path)


def reading(client, after=None):
    return client.call("GET", f"{JOB}?stream=true" + ("" if after is None else f"&starting_after={after}"))


def numbers(call):
    return [event["sequence_number"] for event in to_events(call.text)]


def statuses(call):
    return [event["response"]["status"] for event in to_events(call.text) if "response" in event]


async def until(holds):
    while not holds():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def done(services):
    """Wait until no job is under way or waits for the store."""
    await calm(services)
    for exchange in list(services.jobs.values()):
        if exchange.job:
            await exchange.job.keep()


async def begun(client, pause, **body):
    """Have a job under way, after its first token; gives the accepted response."""
    reply = await background(client, **body).reply()
    await pause.reached.wait()
    return reply
