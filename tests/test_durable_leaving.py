"""INTERLOCK_DURABLE=1: a client that leaves before its terminal event has is to find nothing, nor is anybody else."""

import asyncio
from http import HTTPStatus

import pytest

from machines.exchange import State
from storage.errors import WriteError
from storage.rows import Chain, Missing
from tests.doubles import MODEL, watch
from tests.durable import (  # noqa: F401  fixtures
    BOTH,
    Gate,
    assert_nothing_is_left,
    calm,
    continued,
    durable,
    durable_services,
    held_puts,
    stored,
)
from tests.sequences.laws import assert_laws, to_events


@pytest.fixture
def deletes(services) -> Gate:
    return Gate(services.store, "withdraw")


@BOTH
async def test_a_client_that_leaves_while_its_row_is_written_leaves_nothing(client, services, puts, ended, stream):
    call = client.start(input="Hello", stream=stream)
    await puts.asked.wait()

    call.leave()
    await call.reply()
    while services.running:
        await asyncio.wait(services.running)
    meanwhile = await continued(client)
    puts.opened.set()

    assert (ended[0].event, ended[0].trace[-1].source) == ("client_gone", State.PERSISTING)
    assert meanwhile.status_code == HTTPStatus.NOT_FOUND
    await calm(services)
    assert await stored(services) == Missing()
    assert (await continued(client)).status_code == HTTPStatus.NOT_FOUND
    assert not services.writes.provisional.known


async def test_a_write_that_never_ends_lets_the_model_go_when_its_client_leaves(client, services, puts):
    services.writes.hard_timeout = 0
    call = client.start(input="Hello")
    await puts.asked.wait()
    binding = services.models[MODEL]
    assert binding.retains == 1

    call.leave()
    await call.reply()
    while services.running:
        await asyncio.wait(services.running)

    assert (binding.leases, binding.retains, binding.tombstones) == (0, 0, 0)
    puts.opened.set()
    await calm(services)


@BOTH
async def test_a_client_that_leaves_while_its_terminal_event_does_leaves_nothing(client, services, ended, stream):
    call = client.start(input="Hello", stream=stream)
    call.leave_on = b'"status":"completed","incomplete_details"'
    await call.reply()

    await assert_nothing_is_left(services, ended, State.ABANDONED)
    assert ended[-1].trace[-1].source is State.EMITTING


async def test_a_row_that_is_to_be_deleted_is_not_found_though_it_is_there(client, services, deletes):
    call = client.start(input="Hello", stream=True)
    call.leave_on = b"response.completed"
    await call.reply()
    await deletes.asked.wait()

    there = await stored(services)
    refused = await continued(client)
    item = {"type": "item_reference", "id": there.rows[0].output_json.partition('"id":"')[2].partition('"')[0]}
    named = await client.post(input=[{"role": "user", "content": "Hi"}, item])

    assert isinstance(there, Chain)
    assert (refused.status_code, refused.json["error"]["code"]) == (404, "previous_response_not_found")
    assert (named.status_code, named.json["error"]["code"]) == (404, "item_not_found")
    deletes.opened.set()
    await calm(services)
    assert await stored(services) == Missing()


async def test_a_row_whose_terminal_event_has_yet_to_leave_is_waited_for(client, services, ended):
    services.settings = durable(write_wait_ms=1)
    call = client.start(input="Hello", stream=True)
    call.unread = asyncio.Semaphore(2)
    started = watch(services.writes, "start")
    await started.wait()
    await asyncio.wait(services.writes.running)

    early = await continued(client)
    services.settings = durable()
    waiting = client.start(input="And?", previous_response_id="resp_1")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.task.done()
    for _ in range(100):
        call.unread.release()
    await call.reply()

    assert (early.status_code, early.json["error"]["type"]) == (503, "storage_timeout")
    assert (await waiting.reply()).status_code == HTTPStatus.OK


async def test_whoever_waits_for_a_row_that_is_then_deleted_is_told_that_it_is_unknown(client, services, puts):
    call = client.start(input="Hello")
    await puts.asked.wait()
    waiting = client.start(input="And?", previous_response_id="resp_1")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.task.done()

    call.leave()
    await call.reply()

    assert (await waiting.reply()).status_code == HTTPStatus.NOT_FOUND
    puts.opened.set()
    await calm(services)


async def test_a_row_that_lands_while_the_store_is_read_is_not_shown(client, services, deletes):
    read, reading = services.store.chain, asyncio.Event()
    go_on = asyncio.Event()

    async def read_late(*given):
        reading.set()
        await go_on.wait()
        return await read(*given)

    services.store.chain = read_late
    early = client.start(input="And?", previous_response_id="resp_2")
    await reading.wait()
    call = client.start(input="Hello")
    call.leave_on = b'"status":"completed"'
    await call.reply()
    await deletes.asked.wait()

    go_on.set()

    assert (await early.reply()).status_code == HTTPStatus.NOT_FOUND
    services.store.chain = read
    assert isinstance(await stored(services, "resp_2"), Chain)
    deletes.opened.set()
    await calm(services)
    assert await stored(services, "resp_2") == Missing()


async def test_a_write_that_is_stuck_when_its_client_leaves_is_unknown_and_deleted_when_it_lands(
    client, services, puts, ended
):
    services.writes.hard_timeout = 0.001
    stuck = watch(services.writes, "trip")
    call = client.start(input="Hello", stream=True)
    await stuck.wait()

    call.leave()
    await call.reply()
    meanwhile = await continued(client)
    puts.opened.set()
    await calm(services)

    assert meanwhile.status_code == HTTPStatus.NOT_FOUND
    assert not services.writes.markers
    assert await stored(services) == Missing()


async def test_a_reader_that_stands_still_while_its_row_is_written_is_given_up(
    client, services, puts, ended, monkeypatch
):
    monkeypatch.setattr("handlers.outbox.PATIENCE", 0.05)
    services.settings = durable(heartbeat_seconds=0.001)
    call = client.start(input="Hello", stream=True)
    await puts.asked.wait()
    call.unread = asyncio.Semaphore(0)

    while services.exchanges:
        await asyncio.wait(services.running)
    puts.opened.set()

    await assert_nothing_is_left(services, ended, State.ABANDONED)
    assert (ended[-1].event, ended[-1].trace[-1].source) == ("client_stalled", State.PERSISTING)
    call.leave()
    call.unread.release()
    await call.reply()


async def test_a_stream_is_kept_alive_while_its_row_is_written(client, services, puts):
    services.settings = durable(heartbeat_seconds=0.001)
    call = client.start(input="Hello", stream=True)
    await call.seen("response.output_item.done")

    await call.seen('"sequence_number":10')
    puts.opened.set()
    await call.reply()

    events = to_events(call.text)
    assert_laws(events)
    assert {event["type"] for event in events[8:-1]} == {"response.in_progress"}


@BOTH
async def test_a_row_that_could_not_be_deleted_stays_out_of_sight_until_the_sweep_deletes_it(
    client, services, ended, stream
):
    delete, tried = services.store.withdraw, asyncio.Event()

    async def fail_once(response_id):
        if not tried.is_set():
            tried.set()
            raise WriteError("disk full")
        return await delete(response_id)

    services.store.withdraw = fail_once
    call = client.start(input="Hello", stream=stream)
    call.leave_on = b'"status":"completed","incomplete_details"'
    await call.reply()
    await tried.wait()
    assert isinstance(await stored(services), Chain)
    assert (await continued(client)).status_code == HTTPStatus.NOT_FOUND

    services.writes.sweep()

    await calm(services)
    assert await stored(services) == Missing()
    assert not services.writes.provisional.known
