"""The statements that read traces: one by its id, or pages of them. Values travel as parameters only."""

from collections.abc import Callable
from typing import Any

from duckdb import DuckDBPyConnection

from storage.queries import TRACE_COLUMNS, to_row
from storage.rows import ExchangeRow, Missing, TraceQuery

SELECT = f"SELECT {TRACE_COLUMNS} FROM traces WHERE "  # noqa: S608  our own names
# a row's event is that of its last move, so the moves tell of each event on its path
CONDITIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "event": ("contains(moves, ?)", lambda event: f'["{event}",'),
    "state": ("state = ?", str),
    "status": ("status = ?", int),
    "model": ("model = ?", str),
    "response_id": ("response_id = ?", str),
    "since": ("ended_at >= ?", float),
    "until": ("ended_at <= ?", float),
}


def select_trace(cursor: DuckDBPyConnection, exchange_id: str) -> ExchangeRow | None:
    """Read how an exchange went. Raises duckdb.Error."""
    found = cursor.execute(f"{SELECT} id = ?", [exchange_id]).fetchone()
    return None if found is None else to_row(ExchangeRow, found)


def select_traces(cursor: DuckDBPyConnection, asked: TraceQuery) -> list[ExchangeRow] | Missing:
    """Read a page of traces, the newest first; Missing if there is none with the id `after`. Raises duckdb.Error."""
    given = {name: value for name in CONDITIONS if (value := getattr(asked, name)) is not None}
    conditions = [CONDITIONS[name][0] for name in given]
    values = [CONDITIONS[name][1](value) for name, value in given.items()]
    if asked.after is not None:
        cursor.execute("SELECT ended_at, id FROM exchanges WHERE id = ?", [asked.after])
        place = cursor.fetchone()
        if place is None:
            return Missing()
        # many may end in one moment, and an id is all that tells them apart
        conditions.append("(ended_at, id) < (?, ?)")
        values += place
    found = cursor.execute(
        f"{SELECT} {' AND '.join(conditions) or 'true'} ORDER BY ended_at DESC, id DESC LIMIT ?",
        [*values, asked.limit],
    )
    return [to_row(ExchangeRow, row) for row in found.fetchall()]
