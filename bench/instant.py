"""What the server itself costs: the product over an engine that answers at once, against a bare Falcon app.

The bare app has no more to do than to send the same bytes, by the same gunicorn with the same settings.
"""

import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.load import post, send
from bench.servers import Server, gunicorn
from bench.table import Row, compare, rounds

ROUNDS = 7
WHOLE: dict[str, Any] = {"model": "instant", "input": "Say hello.", "max_output_tokens": 8}
STREAM = {**WHOLE, "max_output_tokens": 1000, "stream": True}
PACED = {**WHOLE, "model": "paced", "max_output_tokens": 100, "stream": True}
STAMP = re.compile(rb'"delta":"@(\d+)"')


class Load(NamedTuple):
    """A request, and how often it is sent at once and in all; `units` is how many things a sending is counted as."""

    request: bytes
    connections: int
    times: int = 1
    units: int = 1


class Cost:
    """Rates of one server under a load, and the processor time they took it."""

    def __init__(self, server: Server, load: Load) -> None:
        self._server = server
        self._load = load
        self._seconds = 0.0
        self._done = 0

    def rate(self) -> float:
        """Send the load once; units a second."""
        load, before = self._load, self._server.cpu_seconds()
        seconds = send(self._server.url, load.request, connections=load.connections, times=load.times)
        self._seconds += self._server.cpu_seconds() - before
        done = load.connections * load.times * load.units
        self._done += done
        return done / seconds

    @property
    def microseconds(self) -> float:
        """Tell how much processor time a unit took, whatever else the machine did."""
        return self._seconds / self._done * 1e6


@contextmanager
def both(**env: str) -> Iterator[tuple[Server, Server, int]]:
    """Run the product and the bare app that repeats its replies; tells how many events a stream has."""
    with tempfile.TemporaryDirectory() as folder, gunicorn("bench.instant_app:app", **env) as ours:
        for name, body in {"whole": WHOLE, "stream": STREAM, "paced": PACED}.items():
            (Path(folder) / name).write_bytes(fetch(ours.url, body))
        events = (Path(folder) / "stream").read_bytes().count(b"event: ")
        with gunicorn("bench.bare_app:app", BENCH_REPLIES=folder) as bare:
            yield ours, bare, events


def fetch(url: str, body: dict[str, Any]) -> bytes:
    """Read one whole reply, for the bare app to repeat."""
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", "/v1/responses", json.dumps(body))
    return connection.getresponse().read()


def versus(name: str, ours: Cost, bare: Cost, least: float) -> list[Row]:
    """Compare rates, which are the goal, and processor time, which a busy machine distorts less."""
    print(f"{name}/s against a bare Falcon app")
    pairs = rounds(ours.rate, bare.rate, ROUNDS)
    one, other = ours.microseconds, bare.microseconds
    return [
        compare(f"{name}/s, instant engine / bare Falcon", f"{name}/s", pairs, least=least),
        Row(f"processor time of one of the {name}", f"{one:.0f} µs", f"{other:.0f} µs", f"1 / {one / other:.1f}"),
    ]


def requests() -> list[Row]:
    """Compare JSON replies, each stored in a file."""
    with tempfile.TemporaryDirectory() as folder, both(INTERLOCK_DB=f"{folder}/db") as (ours, bare, _):
        one = Cost(ours, Load(post("/v1/responses", WHOLE), 8, 100))
        other = Cost(bare, Load(post("/whole", WHOLE), 8, 100))
        return versus("requests", one, other, 0.25)


def events() -> list[Row]:
    """Compare streams of a thousand tokens."""
    with both(INTERLOCK_DB=":memory:") as (ours, bare, count):
        one = Cost(ours, Load(post("/v1/responses", STREAM), 20, units=count))
        other = Cost(bare, Load(post("/stream", STREAM), 20, units=count))
        return versus("events", one, other, 0.5)


def latency() -> list[Row]:
    """Tell how much later than by the bare app a piece is read, when 50 streams get one every 20 ms."""
    with both(INTERLOCK_DB=":memory:") as (ours, bare, _):
        print("p99 from the engine's piece to the client, ms, against a bare Falcon app")
        pairs = rounds(
            lambda: p99(ours, post("/v1/responses", PACED)), lambda: p99(bare, post("/paced", PACED)), ROUNDS
        )
    one, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    added = f"{one - other:+.1f} ms"
    return [Row("p99 from a piece to its reader, 50 streams at 20 ms", f"{one:.1f} ms", f"{other:.1f} ms", added)]


def p99(server: Server, request: bytes) -> float:
    """Measure in milliseconds; the stamps are of the clock that both processes share."""
    late: list[float] = []

    def hear(data: bytes) -> None:
        now = time.monotonic_ns()
        late.extend((now - int(stamp)) / 1e6 for stamp in STAMP.findall(data))

    send(server.url, request, connections=50, hear=hear)
    return statistics.quantiles(late, n=100)[98]
