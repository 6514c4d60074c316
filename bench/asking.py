"""Asks a server as clients do: many streams at once, each read frame by frame."""

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ENDS = {"response.completed", "response.incomplete"}


class Heard(NamedTuple):
    """What came of a streamed response: when its text grew, and the resource at its end."""

    asked_at: float
    times: list[float]
    response: dict[str, Any]

    @property
    def text(self) -> str:
        return "".join(part["text"] for item in self.response["output"] for part in item["content"])

    @property
    def tokens(self) -> int:
        return int(self.response["usage"]["output_tokens"])


def ask(url: str, body: dict[str, Any], **headers: str) -> Heard:
    """Stream a response of Interlock to its end. Raises RuntimeError for one that fails."""
    asked_at, times, data = time.perf_counter(), [], "{}"
    for data in frames(url, "/v1/responses", {**body, "stream": True}, **headers):
        if '"type":"response.output_text.delta"' in data:
            times.append(time.perf_counter())
    last = json.loads(data)
    if last.get("type") not in ENDS:
        raise RuntimeError(data)
    return Heard(asked_at, times, last["response"])


def frames(url: str, path: str, body: dict[str, Any], **headers: str) -> Iterator[str]:
    """Post a request and read the data of its frames."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    for line in connection.getresponse():
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield line[6:].decode()
    connection.close()


def together(ask_one: Any, requests: list[Any]) -> tuple[float, list[Any]]:
    """Ask all at once; give the seconds until the last has ended, and what each gave."""
    with ThreadPoolExecutor(len(requests)) as pool:
        started = time.perf_counter()
        answers = list(pool.map(ask_one, requests))
        return time.perf_counter() - started, answers
