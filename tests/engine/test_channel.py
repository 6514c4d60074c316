import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.channel import UNREAD_PIECES, Channel
from engine.errors import DecodeError
from engine.pieces import Text


def texts(count):
    return [Text(str(n)) for n in range(count)]


async def pieces_of(channel):
    return [piece async for piece in channel]


class Feeder:
    """Puts pieces from a thread of its own, and tells when the channel makes it wait."""

    def __init__(self, channel, pieces):
        self.waits = threading.Semaphore(0)
        self.answers = []
        self._channel, self._pieces = channel, pieces
        self._wait, channel._room.wait = channel._room.wait, self._tell_and_wait
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    async def until_it_waits(self):
        await asyncio.to_thread(self.waits.acquire)

    async def until_it_is_done(self):
        await asyncio.to_thread(self._thread.join)

    def _feed(self):
        self.answers.extend(self._channel.put(piece) for piece in self._pieces)
        self._channel.close()

    def _tell_and_wait(self, _timeout):
        self.waits.release()
        self._wait(60)


async def test_pieces_arrive_in_order_and_then_it_ends():
    channel = Channel()
    feeder = Feeder(channel, texts(100))

    assert await pieces_of(channel) == texts(100)
    await feeder.until_it_is_done()
    assert all(feeder.answers)


async def test_a_full_channel_makes_the_thread_wait_for_each_piece_read():
    channel = Channel()
    feeder = Feeder(channel, texts(UNREAD_PIECES + 5))
    await feeder.until_it_waits()
    assert list(channel._unread) == texts(UNREAD_PIECES)

    await anext(channel)
    await feeder.until_it_waits()

    assert list(channel._unread) == texts(UNREAD_PIECES + 1)[1:]
    channel.cancel()
    await feeder.until_it_is_done()


async def test_a_cancel_lets_go_of_a_thread_that_waits():
    channel = Channel(capacity=1)
    feeder = Feeder(channel, texts(3))
    await feeder.until_it_waits()

    channel.cancel()

    await feeder.until_it_is_done()
    assert feeder.answers == [True, False, False]
    assert await pieces_of(channel) == []


async def test_a_cancel_before_the_first_piece_refuses_them_all():
    channel = Channel()

    channel.cancel()
    channel.cancel()

    assert not channel.put(Text("a"))
    assert await pieces_of(channel) == []


async def test_a_cancel_wakes_a_sleeping_reader():
    channel = Channel()
    reading = asyncio.create_task(pieces_of(channel))
    await asyncio.sleep(0)

    channel.cancel()

    assert await reading == []


async def test_an_error_is_raised_once_after_the_unread_pieces():
    channel = Channel()
    channel.put(Text("a"))
    channel.close(DecodeError("broke"))

    assert await anext(channel) == Text("a")
    with pytest.raises(DecodeError, match="broke"):
        await anext(channel)
    assert await pieces_of(channel) == []


async def test_a_close_after_a_cancel_says_nothing():
    channel = Channel()
    channel.cancel()

    channel.close(DecodeError("broke"))

    assert await pieces_of(channel) == []


async def test_a_cancel_after_a_close_drops_what_was_unread():
    channel = Channel()
    channel.put(Text("a"))
    channel.close(DecodeError("broke"))

    channel.cancel()

    assert await pieces_of(channel) == []


async def test_only_the_first_close_counts():
    channel = Channel()
    channel.close(DecodeError("first"))
    channel.close()

    with pytest.raises(DecodeError, match="first"):
        await anext(channel)


async def test_a_reader_that_was_cancelled_can_come_back():
    channel = Channel()
    reading = asyncio.create_task(anext(channel))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])

    channel.put(Text("a"))

    assert await anext(channel) == Text("a")


async def test_the_loop_is_woken_once_for_pieces_it_has_not_read(monkeypatch):
    channel = Channel()
    wakes = []
    monkeypatch.setattr(channel._loop, "call_soon_threadsafe", wakes.append)

    for piece in texts(UNREAD_PIECES):
        channel.put(piece)

    assert len(wakes) == 1


def test_a_loop_that_has_closed_ends_the_channel():
    async def make():
        return Channel()

    channel = asyncio.run(make())

    assert not channel.put(Text("a"))
    assert channel.is_closed
    channel.close()
    channel.cancel()


def test_a_thread_that_waits_notices_that_the_loop_has_closed(monkeypatch):
    monkeypatch.setattr("engine.channel.LOOP_CHECK_SECONDS", 0.01)

    async def make_full():
        channel = Channel(capacity=1)
        channel.put(Text("a"))
        return channel

    assert not asyncio.run(make_full()).put(Text("b"))


@settings(deadline=None)
@given(
    capacity=st.integers(1, 4),
    count=st.integers(0, 20),
    naps=st.lists(st.integers(0, 3), max_size=20),
    cancel_at=st.none() | st.integers(0, 20),
)
def test_what_is_read_is_what_was_put_from_its_start_on(capacity, count, naps, cancel_at):
    async def run():
        channel = Channel(capacity)
        feeder = Feeder(channel, texts(count))
        heard = []
        async for piece in channel:
            heard.append(piece)
            if len(heard) == cancel_at:
                channel.cancel()
            for _ in range(naps.pop() if naps else 0):
                await asyncio.sleep(0)
        await feeder.until_it_is_done()
        return heard

    stop = count if cancel_at is None or cancel_at == 0 else min(cancel_at, count)

    assert asyncio.run(run()) == texts(stop)
