"""A one-way channel for the pieces of one decode: from the engine's thread to the event loop.

The engine's thread never waits for a reader: it asks whether one is behind, and then sets its decode aside. Closing the
channel, from either side, is final and tells both.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Self

from engine.pieces import Piece

UNREAD_PIECES = 64


class Channel:
    """The decoding that an engine's thread feeds. Make it on the event loop that will read it.

    `wake` is called, on the event loop, when the reader of a decode set aside has caught up, or when any has left.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None, capacity: int = UNREAD_PIECES) -> None:
        self.is_kept = False
        self._wake_engine = wake
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._unread: deque[Piece] = deque()
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        self._begun = asyncio.Event()
        self._cached_tokens = 0
        self._is_aside = False
        self._is_closed = False
        self._error: BaseException | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no further piece can be put."""
        # nobody can read on, or cancel, once the loop is gone
        return self._is_closed or self._loop.is_closed()

    @property
    def is_aside(self) -> bool:
        """Whether the decode was set aside, and its reader has not caught up yet."""
        return self._is_aside and not self.is_closed

    def set_aside(self) -> bool:
        """Tell whether the reader is behind, so that its decode should rest until it has caught up."""
        with self._lock:
            self._is_aside = len(self._unread) >= self._capacity and not self.is_closed
            return self._is_aside

    def begin(self, cached_tokens: int) -> None:
        """Say that the prompt was taken up, so many of its tokens from the cache."""
        self._cached_tokens = cached_tokens
        self._call(self._begun.set)

    def put(self, piece: Piece) -> bool:
        """Hand over one piece; False once the channel is closed."""
        with self._lock:
            if self.is_closed:
                return False
            self._unread.append(piece)
            # A reader only sleeps when nothing is unread, so later pieces need not wake it.
            if len(self._unread) == 1:
                self._call(self._news.set)
            return True

    def close(self, error: BaseException | None = None) -> None:
        """End the channel after its unread pieces, raising `error` there if one is given. The first call counts."""
        with self._lock:
            if not self._is_closed:
                self._error = error
                self._end()

    def cancel(self) -> None:
        """End the channel now: unread pieces, and an error behind them, are dropped."""
        with self._lock:
            self._unread.clear()
            self._error = None
            self._end()
        self._wake_engine()

    def keep(self) -> None:
        """Say that the answer was delivered."""
        self.is_kept = True

    async def begun(self) -> int:
        """Wait until the prompt was taken up, or never will be, and tell how many of its tokens were cached."""
        await self._begun.wait()
        return self._cached_tokens

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while True:
            with self._lock:
                if self._unread:
                    return self._take()
                if self._is_closed:
                    break
                self._news.clear()
            await self._news.wait()
        error, self._error = self._error, None
        raise error or StopAsyncIteration

    def _take(self) -> Piece:
        piece = self._unread.popleft()
        if self._is_aside and not self._unread:
            self._is_aside = False
            self._wake_engine()
        return piece

    def _end(self) -> None:
        self._is_closed = True
        self._call(self._begun.set)
        self._call(self._news.set)

    def _call(self, tell: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:  # all that a closed loop has to say
            self._is_closed = True
