"""The app as its server sees it: it takes calls, and at the end it takes leave."""

import asyncio
from typing import Any

from handlers.exchange import Exchange
from handlers.lifespan import Lifespan
from handlers.services import Services
from handlers.watch import DisconnectWatch
from machines.driver import interrupt
from machines.exchange import State

LAST_WORDS_SECONDS = 0.5  # for the terminal events of streams that were ended
LOOK_SECONDS = 0.05
LAST_WORDS = frozenset({State.EMITTING, State.FAILING})


class Application(DisconnectWatch):
    """An ASGI app that can be drained and closed while its server still runs."""

    def __init__(self, app: Any, services: Services, lifespan: Lifespan) -> None:
        super().__init__(app)
        self._services = services
        self._lifespan = lifespan
        self._calls = 0
        self._deadline = 0.0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        self._calls += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._calls -= 1

    def begin_drain(self, seconds: float) -> None:
        """Take no new requests; those under way that have not ended in `seconds` are ended, each with its row."""
        loop = asyncio.get_running_loop()
        self._services.is_stopping = True
        for socket in list(self._services.sockets):
            socket.stop()
        self._deadline = loop.time() + seconds + LAST_WORDS_SECONDS
        loop.call_later(seconds, self._stop)

    async def close(self) -> None:
        """Wait until the drain is over, then write what is to be written and let go of everything."""
        loop = asyncio.get_running_loop()
        while self._is_busy and loop.time() < self._deadline:  # noqa: ASYNC110 - a second signal moves the deadline
            await asyncio.sleep(LOOK_SECONDS)
        self._give_up_readers()
        await self._lifespan.close()

    @property
    def _is_busy(self) -> bool:
        # an exchange may be no call: over a WebSocket, or in the background
        return bool(self._calls or self._services.exchanges)

    def _give_up_readers(self) -> None:
        """End the exchanges whose readers have not taken the last word by now: their rows are not to be kept."""
        for exchange in list(self._services.exchanges):
            if isinstance(exchange, Exchange) and exchange.job is None and exchange.state in LAST_WORDS:
                interrupt(exchange, "client_stalled")

    def _stop(self) -> None:
        for exchange in list(self._services.exchanges):
            interrupt(exchange, "server_stopping")
