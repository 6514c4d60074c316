"""Waiting with a limit, by a clock that can be replaced."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Timer(Protocol):
    """What `call_later` answers."""

    def cancel(self) -> None:
        """Never call."""


CallLater = Callable[[float, Callable[[], None]], Timer]


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """Call back from the running loop."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class Waiters:
    """Those who wait for one thing to happen."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: dict[asyncio.Future[None], None] = {}  # the first to come is the first to wake

    async def wait(self, seconds: float) -> None:
        """Wait until woken, or `seconds` have passed."""
        waiter = asyncio.get_running_loop().create_future()
        timer = self._call_later(seconds, partial(_wake, waiter))
        self._waiting[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]

    def wake(self) -> None:
        for waiter in self._waiting:
            _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
