"""What it costs to keep traces: one server with an instant engine, which keeps them or not by turns.

Two servers would not do: two of the same settings differ by more than the traces cost. Nor would long turns, for the
machine is not as fast now as a second ago. Even so a ratio tells no less than 1 %, so the server times itself as well.
"""

import json
import time
from typing import NamedTuple
from urllib.request import urlopen

from bench.instant import WHOLE
from bench.load import post, send
from bench.servers import PATIENCE, Server, gunicorn
from bench.table import Row, compare

BLOCKS = 48
TURNS = 15  # of each side in a block: it leaves as many traces as come together while a busy server gathers them
CONNECTIONS, TIMES = 8, 10
REQUEST = post("/v1/responses", WHOLE)
AT_MOST = 0.02


class Block(NamedTuple):
    """Seconds that the requests of one block took with traces kept and without, and of the first, those for traces."""

    kept: float
    none: float
    traces: float


class Turned(NamedTuple):
    """How many seconds a turn took, and those that the server had spent on traces by then."""

    took: float
    spent: float


def measure() -> list[Row]:
    """Compare requests/s with traces kept and without, and tell what part of a request's time its trace takes."""
    with gunicorn("bench.instant_app:app", INTERLOCK_DB=":memory:") as server:
        block(server)
        blocks = [block(server) for _ in range(BLOCKS)]
    done = TURNS * CONNECTIONS * TIMES
    sides = [(done / one.kept, done / one.none) for one in blocks]
    parts = [(one.traces / done * 1e6, one.kept / done * 1e6) for one in blocks]
    return [
        compare("requests/s, traces kept / none", "requests/s", sides, least=1 - AT_MOST),
        compare("a trace, made and inserted / its request, as the server times itself", "µs", parts, most=AT_MOST),
    ]


def block(server: Server) -> Block:
    """Take turns; to write the traces belongs to the side that has them."""
    seconds = {"on": 0.0, "off": 0.0}
    before = turn(server, "off")
    for number in range(TURNS):
        for word in ("on", "off") if number % 2 else ("off", "on"):
            turn(server, word)
            seconds[word] += send(server.url, REQUEST, connections=CONNECTIONS, times=TIMES)
    spent = turn(server, "off").spent - before.spent
    # the second asks in vain, and is what asking takes
    inserted = turn(server, "written").took - turn(server, "written").took
    found = Block(seconds["on"] + inserted, seconds["off"], spent + inserted)
    print(f"  {found.kept:.4g} s against {found.none:.4g} s, {found.traces * 1000:.3g} ms for traces", flush=True)
    return found


def turn(server: Server, word: str) -> Turned:
    """Turn traces on or off, or wait until they are inserted. Raises OSError if the server does not."""
    started = time.perf_counter()
    with urlopen(f"{server.url}/tracing/{word}", timeout=PATIENCE) as reply:  # noqa: S310  our own server
        spent = json.load(reply)
    return Turned(time.perf_counter() - started, spent)
