"""The statements that write traces and read them, one by its id or pages of them. Values travel as parameters only."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection
from msgspec import json

from storage.queries import count_deleted, to_row
from storage.rows import ExchangeRow, Missing, TraceQuery

TRACE_COLUMNS = ", ".join(ExchangeRow.__struct_fields__)
SELECT = f"SELECT {TRACE_COLUMNS} FROM traces WHERE "  # noqa: S608  our own names
# not of the view: its times would be made numbers for every trace, before the page is cut
PAGE = f"""
    SELECT {TRACE_COLUMNS} FROM (
        SELECT *, [each / 1000 for each in CAST(micros AS BIGINT[])] AS ms FROM (
            SELECT * FROM exchanges JOIN kinds ON kind = number WHERE {{}} ORDER BY ended_at DESC, id DESC LIMIT ?
        )
    ) ORDER BY ended_at DESC, id DESC
"""  # noqa: S608  our own names
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

# what many traces share
SHARED = {
    "machine": "VARCHAR", "method": "VARCHAR", "path": "VARCHAR", "state": "VARCHAR", "event": "VARCHAR",
    "status": "INTEGER", "model": "VARCHAR", "moves": "VARCHAR",
}  # fmt: skip
Kind = tuple[str, str, str, str, str, int | None, str | None, str]
to_kind: Callable[[ExchangeRow], Kind] = attrgetter(*SHARED)
SELECT_KINDS = f"SELECT number, {', '.join(SHARED)} FROM kinds"  # noqa: S608  our own names
INSERT_KINDS = f"INSERT INTO kinds (number, {', '.join(SHARED)}) SELECT unnest(?::INTEGER[]), " + ", ".join(
    f"unnest(?::{sort}[])" for sort in SHARED.values()
)
encode = json.Encoder().encode


class TraceWriter:
    """Writes traces; only one of it may be at work. What many share, their kind, is written once and has a number."""

    def __init__(self, cursor: DuckDBPyConnection) -> None:
        self._cursor = cursor
        cursor.execute("SET pandas_analyze_sample = 0")  # what arrays hold is known; to look is a fifth of an insert
        self._numbers: dict[Kind, int] = {}

    def insert(self, traces: Sequence[ExchangeRow]) -> None:
        """Commit all the traces, or none; kinds that were new may stay. Raises duckdb.Error."""
        micros = np.rint(np.array([ms for row in traces for ms in row.ms], float) * 1000).astype(np.int64).tolist()
        ends = list(accumulate(len(row.ms) for row in traces))
        texts = {
            "id": [row.id for row in traces],
            "response_id": [row.response_id for row in traces],
            "micros": [encode(micros[end - len(row.ms) : end]).decode() for row, end in zip(traces, ends, strict=True)],
            "facts": [row.facts for row in traces],
        }
        # DuckDB finds these arrays by their name in the statement, and reads them faster than it binds parameters
        incoming = {name: np.array(values, object) for name, values in texts.items()}
        incoming["ended_at"] = np.array([row.ended_at for row in traces], float)
        incoming["kind"] = np.array(self._number(traces))
        names = ", ".join(incoming)
        self._cursor.execute(f"INSERT INTO exchanges ({names}) SELECT {names} FROM incoming")  # noqa: S608  our own names

    def _number(self, traces: Sequence[ExchangeRow]) -> list[int]:
        kinds = [to_kind(row) for row in traces]
        if new := [kind for kind in kinds if kind not in self._numbers]:
            self._add(new)
        return [self._numbers[kind] for kind in kinds]

    def _add(self, kinds: Sequence[Kind]) -> None:
        """Give numbers to those that the database does not have yet, all or none."""
        self._numbers = {tuple(kind): number for number, *kind in self._cursor.execute(SELECT_KINDS).fetchall()}
        unknown = dict.fromkeys(kind for kind in kinds if kind not in self._numbers)
        if unknown:
            first = max(self._numbers.values(), default=0) + 1
            numbers = range(first, first + len(unknown))
            self._cursor.execute(INSERT_KINDS, [list(numbers), *map(list, zip(*unknown, strict=True))])
            self._numbers |= zip(unknown, numbers, strict=True)

    def forget(self, _: DuckDBPyConnection) -> int:
        """Delete the kinds that no trace is of any more, and say how many. Raises duckdb.Error."""
        self._numbers = {}  # first, for what breaks may be deleted all the same; they are read again when next needed
        gone = self._cursor.execute("DELETE FROM kinds WHERE number NOT IN (SELECT kind FROM exchanges)")
        return count_deleted(gone)


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
    found = cursor.execute(PAGE.format(" AND ".join(conditions) or "true"), [*values, asked.limit])
    return [to_row(ExchangeRow, row) for row in found.fetchall()]
