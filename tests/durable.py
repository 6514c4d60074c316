"""What tests share that hold the store back or wait until nothing is under way, as those of INTERLOCK_DURABLE=1."""

import asyncio

import pytest

from handlers.settings import Settings
from machines.exchange import State
from storage.errors import WriteError
from storage.rows import Missing
from tests.doubles import MODEL, NOW, say, to_services
from tests.sequences.laws import to_events

BOTH = pytest.mark.parametrize("stream", [False, True])


def durable(**changes) -> Settings:
    return Settings(durable=True, **changes)


class Gate:
    """Holds the calls of one method of the store back until it is opened."""

    def __init__(self, store, name: str) -> None:
        self.asked = asyncio.Event()
        self.opened = asyncio.Event()
        self._method = getattr(store, name)
        setattr(store, name, self.call)

    async def call(self, *given):
        self.asked.set()
        await self.opened.wait()
        return await self._method(*given)


@pytest.fixture(name="services")
def durable_services(engine, store):
    engine.script = say("Noted.")
    return to_services(engine, store, durable())


@pytest.fixture(name="puts")
def held_puts(services) -> Gate:
    return Gate(services.store, "put")


def fails(*_):
    raise WriteError("disk full")


async def calm(services) -> None:
    """Wait until nothing is under way any more."""
    writes = services.writes
    while under_way := {*services.running, *writes.running, *writes.provisional.running}:
        await asyncio.wait(under_way)


async def stored(services, response_id: str = "resp_1"):
    return await services.store.chain(response_id, NOW)


async def assert_nothing_is_left(services, ended, state: State) -> None:
    await calm(services)
    writes = services.writes
    assert ended[-1].state is state
    assert await stored(services) == Missing()
    assert [writes.known, writes.failed, writes.markers, writes.provisional.known] == [{}] * 4
    assert services.models[MODEL].slots.running == 0


def continued(client, response_id: str = "resp_1"):
    return client.post(input="And?", previous_response_id=response_id)


def to_terminal(call, stream):
    """Give the response that the terminal event or the whole reply carries."""
    return to_events(call.text)[-1]["response"] if stream else call.json
