"""An ASGI client for tests. Unlike Falcon's, it stays until the reply is whole, unless told to leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.doubles import MODEL
from tests.openapi.wire import check_reply


class Call:
    """One request under way: its chunks as the server sends them, and a client that may leave."""

    def __init__(self, app: Any, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        self.chunks: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.status_code = 0
        self.unread = asyncio.Semaphore(1_000_000)  # how many writes the connection still takes
        self.leave_on: bytes | None = None  # leave while a chunk that holds this is being sent
        self.stall_on: bytes | None = None  # take nothing more once a chunk that holds this is to be sent
        self._is_checked = path.startswith("/v1/responses")
        self._body: list[bytes] = [body]
        self._more_body = False
        self._gone = asyncio.Event()
        self._told = asyncio.Event()
        self._wrote = asyncio.Condition()
        path, _, query = path.partition("?")
        given = {"host": "localhost", "content-length": str(len(body)), **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "server": ("localhost", 80), "client": ("127.0.0.1", 1),
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    def leave(self) -> None:
        """Close the connection."""
        self._gone.set()

    def withhold_body(self) -> None:
        """Send only the first half of the body."""
        self._body = [self._body[0][: len(self._body[0]) // 2]]
        self._more_body = True

    async def reply(self) -> "Call":
        """Wait until the server is through; what it said must be what the protocol says."""
        await self.task
        if self._is_checked:
            check_reply(self.status_code, self.headers.get("Content-Type", ""), self.text)
        return self

    async def seen(self, text: str) -> None:
        """Wait until the reply holds `text`."""
        async with self._wrote:
            await self._wrote.wait_for(lambda: text in self.text)

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": self._more_body}
        await self._gone.wait()
        self._told.set()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.status_code = message["status"]
            self.headers = {k.decode().title(): v.decode() for k, v in message["headers"]}
            return
        await self._take(message.get("body", b""))

    async def _take(self, chunk: bytes) -> None:
        if self.leave_on and self.leave_on in chunk:
            self.leave()
            await self._told.wait()
            return
        if self.stall_on and self.stall_on in chunk:
            self.unread = asyncio.Semaphore(0)
        await self.unread.acquire()
        async with self._wrote:
            if chunk:
                self.chunks.append(chunk)
            self._wrote.notify_all()


class Client:
    """Makes requests of one app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> Call:
        return Call(self.app, method, path, body, headers)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Call:
        return await self.call(method, path, body, **headers).reply()

    def start(self, **body: Any) -> Call:
        """POST /v1/responses to the scripted model, and do not wait."""
        return self.call("POST", "/v1/responses", json.dumps({"model": MODEL, **body}).encode())

    async def post(self, **body: Any) -> Call:
        """POST /v1/responses."""
        return await self.start(**body).reply()


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[Client]:
    """Run an app's lifespan around a client of it."""
    incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outgoing: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
    lifespan = asyncio.create_task(app(scope, incoming.get, outgoing.put))

    async def tell(event: str) -> None:
        incoming.put_nowait({"type": f"lifespan.{event}"})
        assert (await outgoing.get())["type"] == f"lifespan.{event}.complete"

    await tell("startup")
    await asyncio.sleep(0)
    if services := getattr(app, "_services", None):  # models are loaded in the background
        await services.models.settled()
    try:
        yield Client(app)
    finally:
        await tell("shutdown")
        await lifespan
