"""What stays in memory: the worker after a thousand stored requests, and after many more."""

import tempfile

from bench.instant import WHOLE
from bench.load import post, send
from bench.servers import gunicorn
from bench.table import Row

FIRST = 1000
CONNECTIONS = 8


def measure(requests: int) -> list[Row]:
    """Send so many requests and compare with the first thousand; DuckDB's own cache is up to 512 MB of it."""
    request = post("/v1/responses", WHOLE)
    rows = []
    for kept, sent in (("stored in a file", request), ("not stored", post("/v1/responses", {**WHOLE, "store": False}))):
        with (
            tempfile.TemporaryDirectory() as folder,
            gunicorn("bench.instant_app:app", INTERLOCK_DB=f"{folder}/db") as server,
        ):
            sizes = []
            for count in (FIRST, requests - FIRST):
                send(server.url, sent, connections=CONNECTIONS, times=count // CONNECTIONS)
                sizes.append(server.resident_mb())
                print(f"  {kept}: {sizes[-1]:.0f} MB")
        name = f"memory after {requests} requests {kept}, and after {FIRST}"
        rows.append(Row(name, f"{sizes[1]:.0f} MB", f"{sizes[0]:.0f} MB", f"{sizes[1] / sizes[0]:.2f}"))
    return rows
