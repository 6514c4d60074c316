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
    """Puts pieces as an engine's thread does: it rests while its reader is behind, until the channel wakes it."""

    def __init__(self, pieces, capacity=UNREAD_PIECES):
        self.rests = threading.Semaphore(0)
        self.most = 0
        self.channel = Channel(self._wake, capacity)
        self.answers = []
        self._wakes = threading.Semaphore(0)
        self._pieces = pieces
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    async def until_it_rests(self):
        await asyncio.to_thread(self.rests.acquire)

    async def until_it_is_done(self):
        await asyncio.to_thread(self._thread.join)

    def _wake(self):
        self._wakes.release()

    def _feed(self):
        for piece in self._pieces:
            if self.channel.set_aside():
                self.rests.release()
                while self.channel.is_aside:
                    self._wakes.acquire()
            self.answers.append(self.channel.put(piece))
            self.most = max(self.most, len(self.channel._unread))
        self.channel.close()


async def test_pieces_arrive_in_order_and_then_it_ends():
    feeder = Feeder(texts(100))

    assert await pieces_of(feeder.channel) == texts(100)
    await feeder.until_it_is_done()
    assert all(feeder.answers)


async def test_a_reader_that_is_behind_sets_its_decode_aside_until_it_has_read_everything():
    feeder = Feeder(texts(7), capacity=3)
    await feeder.until_it_rests()
    channel = feeder.channel

    for n in range(3):
        assert channel.is_aside
        assert await anext(channel) == Text(str(n))
    assert not channel.is_aside

    assert await pieces_of(channel) == texts(7)[3:]
    assert feeder.most == 3
    await feeder.until_it_is_done()


async def test_a_reader_that_keeps_up_is_never_aside():
    channel = Channel(capacity=2)
    channel.put(Text("a"))

    assert not channel.set_aside()
    assert not channel.is_aside


async def test_the_thread_puts_without_waiting_even_when_the_channel_is_full():
    channel = Channel(capacity=2)

    assert all(channel.put(piece) for piece in texts(5))

    assert channel.set_aside()
    channel.close()
    assert await pieces_of(channel) == texts(5)


async def test_a_cancel_wakes_a_thread_that_rests():
    feeder = Feeder(texts(3), capacity=1)
    await feeder.until_it_rests()

    feeder.channel.cancel()

    await feeder.until_it_is_done()
    assert feeder.answers == [True, False, False]
    assert await pieces_of(feeder.channel) == []


async def test_only_a_reader_that_caught_up_or_left_wakes_the_thread():
    wakes = []
    channel = Channel(lambda: wakes.append("woken"), capacity=2)
    for piece in texts(2):
        channel.put(piece)
    await anext(channel)
    await anext(channel)
    assert wakes == []

    for piece in texts(2):
        channel.put(piece)
    channel.set_aside()
    await anext(channel)
    assert wakes == []
    await anext(channel)
    assert wakes == ["woken"]

    channel.cancel()
    assert wakes == ["woken"] * 2


async def test_a_channel_that_ended_is_not_aside():
    channel = Channel(capacity=1)
    channel.put(Text("a"))
    channel.set_aside()

    channel.close()

    assert not channel.is_aside
    assert not channel.set_aside()


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


async def test_the_beginning_tells_how_much_of_the_prompt_was_cached():
    channel = Channel()
    waiting = asyncio.create_task(channel.begun())
    await asyncio.sleep(0)
    assert not waiting.done()

    await asyncio.to_thread(channel.begin, 7)

    assert await waiting == 7
    assert await channel.begun() == 7


@pytest.mark.parametrize("end", [Channel.close, Channel.cancel])
async def test_what_ends_before_it_began_leaves_nobody_waiting(end):
    channel = Channel()
    waiting = asyncio.create_task(channel.begun())
    await asyncio.sleep(0)

    end(channel)

    assert await waiting == 0


async def test_an_answer_is_kept_once_its_reader_says_so():
    channel = Channel()
    assert not channel.is_kept

    channel.keep()

    assert channel.is_kept


def test_a_loop_that_has_closed_ends_the_channel():
    async def make():
        channel = Channel(capacity=1)
        channel.put(Text("a"))
        assert channel.set_aside()
        return channel

    channel = asyncio.run(make())

    assert channel.is_closed
    assert not channel.is_aside
    assert not channel.put(Text("b"))
    channel.begin(0)
    channel.close()
    channel.cancel()


@settings(deadline=None)
@given(
    capacity=st.integers(1, 4),
    count=st.integers(0, 20),
    naps=st.lists(st.integers(0, 3), max_size=20),
    cancel_at=st.none() | st.integers(0, 20),
)
def test_what_is_read_is_what_was_put_from_its_start_on(capacity, count, naps, cancel_at):
    async def run():
        feeder = Feeder(texts(count), capacity)
        heard = []
        async for piece in feeder.channel:
            heard.append(piece)
            if len(heard) == cancel_at:
                feeder.channel.cancel()
            for _ in range(naps.pop() if naps else 0):
                await asyncio.sleep(0)
        await feeder.until_it_is_done()
        assert feeder.most <= capacity
        return heard

    stop = count if cancel_at is None or cancel_at == 0 else min(cancel_at, count)

    assert asyncio.run(run()) == texts(stop)
