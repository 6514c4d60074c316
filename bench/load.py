"""A load of HTTP requests that costs the client little: it shares the machine with the server it measures."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"\r\n0\r\n\r\n"
GIVEN_UP = 600  # seconds


class Replies(asyncio.Protocol):
    """One connection, kept alive: it reads each reply to its end and then asks `again` whether to send the next."""

    def __init__(self, request: bytes, again: Callable[[], bool], hear: Callable[[bytes], None] | None) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._again = again
        self._hear = hear
        self._head = self._tail = b""
        self._read = 0
        self._whole: int | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._hear is not None:
            self._hear(data)
        self._head += data[: 2048 - len(self._head)]
        self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        self._read += len(data)
        if self._whole is None and (end := self._head.find(b"\r\n\r\n")) > 0:
            length = LENGTH.search(self._head, 0, end + 2)
            self._whole = end + 4 + int(length[1]) if length else 0
        if self._read == self._whole or (self._whole == 0 and self._tail == LAST_CHUNK):
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error or ConnectionError("the server cut the connection"))

    def _send(self) -> None:
        self._head = self._tail = b""
        self._read, self._whole = 0, None
        self._transport.write(self._request)

    def _end(self) -> None:
        status = self._head[9:12]
        if status != b"200":
            self.over.set_exception(ConnectionError(self._head.decode()))
        elif self._again():
            self._send()
        else:
            self.over.set_result(None)
            self._transport.close()


def post(path: str, body: dict[str, Any], **headers: str) -> bytes:
    """Write one request."""
    data = json.dumps(body).encode()
    named = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + data


def send(
    url: str, request: bytes, *, connections: int, times: int = 1, hear: Callable[[bytes], None] | None = None
) -> float:
    """Send a request `times` times over each of so many connections at once; give the seconds it took."""
    return asyncio.run(_send(url, request, connections, times, hear))


async def _send(
    url: str, request: bytes, connections: int, times: int, hear: Callable[[bytes], None] | None
) -> float:  # fmt: skip
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 80
    left = connections * (times - 1)

    def again() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    async with asyncio.timeout(GIVEN_UP):
        opened = [
            await loop.create_connection(lambda: Replies(request, again, hear), host, port) for _ in range(connections)
        ]
        await asyncio.gather(*(replies.over for _, replies in opened))
    return time.perf_counter() - started
