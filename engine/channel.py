"""A one-way channel for the pieces of one decode: from the engine's thread to the event loop.

It is bounded, so a reader that pauses pauses the engine. Closing it, from either side, is final and tells both.
"""

import asyncio
import threading
from collections import deque
from typing import Self

from engine.pieces import Piece

UNREAD_PIECES = 16
LOOP_CHECK_SECONDS = 1.0


class Channel:
    """The decoding that an engine thread feeds. Make it on the event loop that will read it."""

    def __init__(self, capacity: int = UNREAD_PIECES) -> None:
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._unread: deque[Piece] = deque()
        self._room = threading.Condition()
        self._news = asyncio.Event()
        self._is_closed = False
        self._error: BaseException | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no further piece can be put."""
        return self._is_closed

    def put(self, piece: Piece) -> bool:
        """Hand over one piece, blocking this thread while the channel is full; False once it is closed."""
        with self._room:
            while len(self._unread) >= self._capacity and not self._is_closed:
                self._room.wait(LOOP_CHECK_SECONDS)
                # Nobody can read on, or cancel, once the loop is gone.
                self._is_closed = self._is_closed or self._loop.is_closed()
            if self._is_closed:
                return False
            self._unread.append(piece)
            # A reader only sleeps when nothing is unread, so later pieces need not wake it.
            return len(self._unread) > 1 or self._wake_reader()

    def close(self, error: BaseException | None = None) -> None:
        """End the channel after its unread pieces, raising `error` there if one is given. The first call counts."""
        with self._room:
            if not self._is_closed:
                self._error = error
                self._end()

    def cancel(self) -> None:
        """End the channel now: unread pieces, and an error behind them, are dropped."""
        with self._room:
            self._unread.clear()
            self._error = None
            self._end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while True:
            with self._room:
                if self._unread:
                    self._room.notify()
                    return self._unread.popleft()
                if self._is_closed:
                    break
                self._news.clear()
            await self._news.wait()
        error, self._error = self._error, None
        raise error or StopAsyncIteration

    def _end(self) -> None:
        self._is_closed = True
        self._room.notify()
        self._wake_reader()

    def _wake_reader(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # all that a closed loop has to say
            self._is_closed = True
        return not self._is_closed
