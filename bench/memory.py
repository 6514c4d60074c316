"""What stays in memory: the worker after a thousand requests, and after many more, with a store and without.

With one, what grows is DuckDB's own cache, which is bounded (512 MB).
"""

import tempfile

from bench.instant import WHOLE
from bench.load import post, send
from bench.servers import gunicorn
from bench.table import Row

FIRST = 1000
CONNECTIONS = 8


def measure(requests: int) -> list[Row]:
    """Send so many requests and compare with the first thousand."""
    with tempfile.TemporaryDirectory() as folder:
        return [grown("stored in a file", f"{folder}/db", requests), grown("without a store", "none", requests)]


def grown(kept: str, db: str, requests: int) -> Row:
    """Measure one server."""
    sizes = []
    with gunicorn("bench.instant_app:app", INTERLOCK_DB=db) as server:
        for count in (FIRST, requests - FIRST):
            send(server.url, post("/v1/responses", WHOLE), connections=CONNECTIONS, times=count // CONNECTIONS)
            sizes.append(server.resident_mb())
            print(f"  {kept}: {sizes[-1]:.0f} MB", flush=True)
    first, last = sizes
    name = f"memory after {requests} requests {kept} / after {FIRST}"
    return Row(name, f"{last:.0f} MB", f"{first:.0f} MB", f"{last / first:.2f}")
