"""Keeps a stream alive while nothing is said: clients give up one that is silent for long, and heed no comments.

What they do heed is `response.in_progress` again, with the next number.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from handlers.exchange import Exchange
from handlers.outbox import ReaderStalledError
from machines.driver import interrupt


@asynccontextmanager
async def beating(exchange: Exchange) -> AsyncIterator[None]:
    """Say `response.in_progress` whenever nothing else was said for a heartbeat, to a stream that has not ended."""
    if not (exchange.wants_stream or exchange.job) or exchange.voice.is_delivered:
        yield
        return
    beats = asyncio.create_task(_beat(exchange))
    try:
        yield
    finally:
        beats.cancel()
        # not `await beats`: that could not tell its cancellation from the exchange's own
        await asyncio.wait([beats])
        if not beats.cancelled():
            beats.result()


async def _beat(exchange: Exchange) -> None:
    while True:
        said = exchange.voice.count
        await asyncio.sleep(exchange.services.settings.heartbeat_seconds)
        if exchange.voice.count != said:
            continue
        try:
            await exchange.beat()
        except ReaderStalledError:
            interrupt(exchange, "client_stalled")
            return
