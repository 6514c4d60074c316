"""How large the database file is after many rows were written and have expired, and after as many again.

The rows are written as the server writes them, those that wait together in one commit, and swept as it sweeps them.
"""

import asyncio
import itertools
import os
import tempfile
from pathlib import Path

from bench.table import Row
from storage.rows import ResponseRow
from storage.store import DuckStore, open_store

ROWS = 100_000
TOGETHER = 500
TEXT = 2000  # random bytes a row, as hexadecimal digits, which no file format can shrink away
TIMES = 3


def measure() -> list[Row]:
    """Give the size of the file when it is full and when it is swept, time after time."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(f"{folder}/responses.duckdb"))


async def _measure(file: str) -> list[Row]:
    store, rows = open_store(file), []
    for time in range(1, TIMES + 1):
        await fill(store, time)
        full = to_mb(file)
        swept = await store.sweep(time + 1, 0)
        rows.append(
            Row(
                f"database file with {swept} rows, time {time} of {TIMES}",
                f"{full:.0f} MB",
                f"{to_mb(file):.0f} MB once swept",
            )
        )
        print(f"  {rows[-1].name}: {rows[-1].ours}, {rows[-1].other}", flush=True)
    await store.close()
    return [*rows, Row("database file once closed", f"{to_mb(file):.0f} MB")]


async def fill(store: DuckStore, time: int) -> None:
    """Put all the rows of one time, at whose end they expire."""
    numbers = iter(range(ROWS))
    while some := list(itertools.islice(numbers, TOGETHER)):
        await asyncio.gather(*(store.put(to_row(time, number)) for number in some))


def to_row(time: int, number: int) -> ResponseRow:
    """Make a row of a conversation's usual size."""
    return ResponseRow(
        id=f"resp_{time:x}{number:031x}",
        previous_response_id=None,
        ancestors=(),
        created_at=time,
        expires_at=time,
        model="smollm2-135m-instruct",
        status="completed",
        instructions=None,
        input_json='[{"type":"message","role":"user","content":"What is the capital of France?"}]',
        output_json=f'[{{"type":"message","content":"{os.urandom(TEXT // 2).hex()}"}}]',
        usage_json='{"input_tokens":40,"output_tokens":400,"total_tokens":440}',
        config_json="{}",
    )


def to_mb(file: str) -> float:
    """Give the size of the database with its log."""
    return sum(part.stat().st_size for part in (Path(file), Path(f"{file}.wal")) if part.exists()) / 1e6
