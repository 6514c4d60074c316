"""A bare Falcon app that sends what Interlock sends: what can be had at most under this server."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import falcon.asgi
from falcon.asgi import Request, Response

PAUSE = 0.02  # seconds, as between the pieces of the product's paced model

FOLDER = Path(os.environ["BENCH_REPLIES"])
STAMP = re.compile(rb"@\d+")


def to_frames(name: str) -> list[bytes]:
    """Take a recorded stream apart."""
    return [frame + b"\n\n" for frame in (FOLDER / name).read_bytes().split(b"\n\n")[:-1]]


class Whole:
    """Answers with a recorded JSON body."""

    def __init__(self) -> None:
        self._body = (FOLDER / "whole").read_bytes()

    async def on_post(self, req: Request, resp: Response) -> None:
        await req.stream.read()
        resp.content_type = "application/json"
        resp.data = self._body


class Stream:
    """Answers with recorded frames."""

    def __init__(self, name: str) -> None:
        self._frames = to_frames(name)

    async def on_post(self, req: Request, resp: Response) -> None:
        await req.stream.read()
        resp.content_type = "text/event-stream"
        resp.stream = self._stream()

    async def _stream(self) -> AsyncIterator[bytes]:
        for frame in self._frames:
            yield frame


class Paced(Stream):
    """The same, each delta a pause after the one before, with the time in it."""

    async def _stream(self) -> AsyncIterator[bytes]:
        for frame in self._frames:
            if b'"delta":' in frame:
                await asyncio.sleep(PAUSE)
                yield STAMP.sub(b"@%d" % time.monotonic_ns(), frame)
            else:
                yield frame


app = falcon.asgi.App()
app.add_route("/whole", Whole())
app.add_route("/stream", Stream("stream"))
app.add_route("/paced", Paced("paced"))
