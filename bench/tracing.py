"""What it costs to keep traces: one server with an instant engine, which keeps them in every other round.

Two servers would not do: two of the same settings differ by more than the traces cost.
"""

import http.client
import time
from urllib.parse import urlsplit

from bench.instant import WHOLE, Cost, Load
from bench.load import post
from bench.servers import Server, gunicorn
from bench.table import Row, compare, rounds

ROUNDS = 60  # many, for the traces cost less than a round differs from the next
LOAD = Load(post("/v1/responses", WHOLE), 8, 100)


class Kept(Cost):
    """The cost of requests whose traces are kept, or not; what the writer does of them belongs to their round."""

    def __init__(self, server: Server, word: str) -> None:
        super().__init__(server, LOAD)
        self._word = word

    def send(self) -> float:
        """Send the load once, and wait until all its traces are written; the seconds it took."""
        started = time.perf_counter()
        turn(self.server, self._word)
        super().send()
        turn(self.server, "off")
        return time.perf_counter() - started


def turn(server: Server, word: str) -> None:
    """Turn traces on or off."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    connection.request("GET", f"/tracing/{word}")
    reply = connection.getresponse()
    if reply.status != http.HTTPStatus.OK:
        msg = f"traces were not turned {word}: {reply.status}"
        raise ConnectionError(msg)
    reply.read()
    connection.close()


def measure() -> list[Row]:
    """Compare requests/s with traces kept and without."""
    with gunicorn("bench.instant_app:app", INTERLOCK_DB=":memory:") as server:
        kept, none = Kept(server, "on"), Kept(server, "off")
        print("requests/s, traces kept against none")
        pairs = rounds(kept.rate, none.rate, ROUNDS)
    cpu = kept.microseconds, none.microseconds
    return [
        compare("requests/s, traces kept / none", "requests/s", pairs, least=0.98),
        Row("processor time of one of them", f"{cpu[0]:.0f} µs", f"{cpu[1]:.0f} µs", f"1 / {cpu[0] / cpu[1]:.2f}"),
    ]
