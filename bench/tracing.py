"""What it costs to keep traces: one server with an instant engine, which keeps them or not by turns.

Two servers would not do: two of the same settings differ by more than the traces cost. Nor would long turns, for the
machine is not as fast now as a second ago.
"""

import http
import time

from bench.instant import WHOLE
from bench.load import post, send
from bench.servers import Server, gunicorn, status
from bench.table import Row, compare

BLOCKS = 120
TURNS = 6  # of each side in a block; it ends before the writer would have gathered for long enough
CONNECTIONS, TIMES = 8, 10
REQUEST = post("/v1/responses", WHOLE)


def measure() -> list[Row]:
    """Compare requests/s with traces kept and without."""
    with gunicorn("bench.instant_app:app", INTERLOCK_DB=":memory:") as server:
        block(server)
        pairs = [block(server) for _ in range(BLOCKS)]
    return [compare("requests/s, traces kept / none", "requests/s", pairs, least=0.98)]


def block(server: Server) -> tuple[float, float]:
    """Give requests/s of both sides; to write the traces belongs to the one that has them."""
    seconds = {"on": 0.0, "off": 0.0}
    for number in range(TURNS):
        for word in ("on", "off") if number % 2 else ("off", "on"):
            turn(server, word)
            seconds[word] += send(server.url, REQUEST, connections=CONNECTIONS, times=TIMES)
    turn(server, "off")
    seconds["on"] += turn(server, "written")
    done = TURNS * CONNECTIONS * TIMES
    print(f"  {done / seconds['on']:.4g} against {done / seconds['off']:.4g}", flush=True)
    return done / seconds["on"], done / seconds["off"]


def turn(server: Server, word: str) -> float:
    """Turn traces on or off, or wait until they are written; the seconds it took."""
    started = time.perf_counter()
    if (answered := status(server.url, f"/tracing/{word}")) != http.HTTPStatus.OK:
        msg = f"traces were not {word}: {answered}"
        raise ConnectionError(msg)
    return time.perf_counter() - started
