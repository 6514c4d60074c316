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
LIVES = 3


def measure() -> list[Row]:
    """Give the size of the file when it is full and when it is swept, life after life."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(f"{folder}/responses.duckdb"))


async def _measure(file: str) -> list[Row]:
    store, rows = open_store(file), []
    for life in range(1, LIVES + 1):
        await fill(store, life)
        full = to_mb(file)
        swept = await store.sweep(life + 1, 0)
        rows.append(Row(f"file of {swept} rows, life {life}", f"{full:.0f} MB", f"{to_mb(file):.0f} MB once swept"))
        print(f"  {rows[-1].name}: {rows[-1].ours}, {rows[-1].other}", flush=True)
    await store.close()
    return [*rows, Row("file once closed", f"{to_mb(file):.0f} MB")]


async def fill(store: DuckStore, life: int) -> None:
    """Put all the rows of one life, which expire with it."""
    numbers = iter(range(ROWS))
    while some := list(itertools.islice(numbers, TOGETHER)):
        await asyncio.gather(*(store.put(to_row(life, number)) for number in some))


def to_row(life: int, number: int) -> ResponseRow:
    """Make a row of a conversation's usual size."""
    return ResponseRow(
        id=f"resp_{life:x}{number:031x}",
        previous_response_id=None,
        ancestors=(),
        created_at=life,
        expires_at=life,
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
