"""The body of a request, read up to a limit."""

from falcon.asgi import Request

from handlers.watch import KEY

CHUNK = 65536
DISCARDED = 64 * 1024 * 1024  # bytes


class TextBody:
    """A body that has arrived already."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    async def read(self, limit: int) -> bytes | None:
        """Give the whole body, or None if it is longer than `limit` bytes."""
        return self._text if len(self._text) <= limit else None


class Body:
    """Reads the body of one request."""

    def __init__(self, req: Request) -> None:
        self._stream = req.stream
        self._length = req.content_length or 0
        self._client = req.scope[KEY]

    async def read(self, limit: int) -> bytes | None:
        """Read the whole body, or None if it is longer than `limit` bytes."""
        body: bytes = await self._stream.read(limit + 1) if self._length <= limit else b""
        if len(body) > limit or self._length > limit:
            await self.discard()
            return None
        self._client.listen()
        return body

    async def discard(self) -> None:
        """Read what is left of the body, and forget it."""
        # a client that is still sending reads no reply; beyond some size it has to be cut off all the same
        for _ in range(DISCARDED // CHUNK):
            if not await self._stream.read(CHUNK):
                return
