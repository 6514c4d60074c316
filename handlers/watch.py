"""Tells a responder that its client has gone, in whatever it is waiting for.

Neither the ASGI server nor Falcon says so while a request waits in a queue or makes a JSON reply: only a pending
`receive()` learns of it. So once the body is in, one is kept pending. A reader of the body that stops at its declared
length may never see the message that says it was the last: such a reader calls `listen`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

KEY = "interlock.client"


class Client:
    """The far end of one request. `on_gone` runs at once if the client has gone already."""

    def __init__(self, listen: Callable[[], None]) -> None:
        self.is_gone = False
        self.listen = listen
        self._on_gone: list[Callable[[], None]] = []

    def on_gone(self, callback: Callable[[], None]) -> None:
        self._on_gone.append(callback)
        if self.is_gone:
            callback()

    def left(self) -> None:
        self.is_gone = True
        for callback in self._on_gone:
            callback()


class DisconnectWatch:
    """ASGI middleware around the whole app: puts a `Client` in each HTTP scope, and tells WebSockets of a lost one."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, _to_spec(send) if scope["type"] == "websocket" else send)
            return
        watched = _Watched(receive)
        scope[KEY] = watched.client
        try:
            await self._app(scope, watched.receive, send)
        finally:
            watched.close()


def _to_spec(send: Any) -> Any:
    """Make a WebSocket's `send` raise OSError once the connection is lost, as ASGI has it.

    Gunicorn lets out what its transport raises, which with uvloop is a RuntimeError.
    """

    async def send_or_tell(message: dict[str, Any]) -> None:
        try:
            await send(message)
        except RuntimeError as error:
            if message["type"] == "websocket.send":
                msg = "the connection is lost"
                raise OSError(msg) from error
            if message["type"] != "websocket.close":  # which has happened
                raise

    return send_or_tell


class _Watched:
    def __init__(self, receive: Any) -> None:
        self.client = Client(self.listen)
        self._receive = receive
        self._pump: asyncio.Task[None] | None = None

    async def receive(self) -> dict[str, Any]:
        if self._pump is not None:
            await asyncio.shield(self._pump)
            return {"type": "http.disconnect"}
        message: dict[str, Any] = await self._receive()
        if message["type"] == "http.disconnect":
            self.client.left()
        elif not message.get("more_body"):
            self.listen()
        return message

    def listen(self) -> None:
        """Wait for the disconnect from now on; what is left of the body is of no interest."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._wait())

    def close(self) -> None:
        """Take note that the response is over, however it ended: nobody reads any more."""
        self.client.left()
        if self._pump is not None:
            self._pump.cancel()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client.left()
