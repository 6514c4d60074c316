"""The statements of every table: rows in, rows out, rows gone. Values travel as parameters only."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np
from duckdb import DuckDBPyConnection
from msgspec import Struct, convert, json

from storage.rows import EventRow, ExchangeRow, JobRow, ResponseRow

SELECT = f"SELECT {', '.join(ResponseRow.__struct_fields__)} FROM responses WHERE id IN "  # noqa: S608  our own names
TRACE_COLUMNS = ", ".join(ExchangeRow.__struct_fields__)
TABLES: dict[type[Struct], str] = {
    ResponseRow: "responses", ExchangeRow: "exchanges", JobRow: "jobs", EventRow: "events",
}  # fmt: skip
UNFINISHED = "(status = 'queued' OR status = 'in_progress')"
EXPIRED = {"responses": "expires_at < ?", "exchanges": "ended_at < ?", "jobs": f"expires_at < ? AND NOT {UNFINISHED}"}
Row = ResponseRow | ExchangeRow | JobRow | EventRow
BETWEEN = "\x1f"  # ASCII's unit separator; the settings and the routes refuse names that have it
encode = json.Encoder().encode
T = TypeVar("T", bound=Struct)


def insert(cursor: DuckDBPyConnection, rows: Sequence[Row]) -> None:
    """Commit all the rows, which are of one table, or none. Raises duckdb.Error."""
    if isinstance(rows[0], ExchangeRow):
        _insert_traces(cursor, [row for row in rows if isinstance(row, ExchangeRow)])
        return
    # a parameter a column: DuckDB binds one a value three times as slowly
    fields = rows[0].__struct_fields__
    columns = ", ".join("unnest(?::VARCHAR[][])" if field == "ancestors" else "unnest(?)" for field in fields)
    into = f"INSERT INTO {TABLES[type(rows[0])]} ({', '.join(fields)}) SELECT {columns}"
    cursor.execute(into, [[_to_value(getattr(row, field)) for row in rows] for field in fields])


def _insert_traces(cursor: DuckDBPyConnection, traces: Sequence[ExchangeRow]) -> None:
    micros = np.rint(np.array([ms for row in traces for ms in row.ms], float) * 1000).astype(np.int64).tolist()
    ends = list(accumulate(len(row.ms) for row in traces))
    columns = {
        "id": [row.id for row in traces],
        "kind": [to_kind(row) for row in traces],
        "response_id": [row.response_id for row in traces],
        "micros": [encode(micros[end - len(row.ms) : end]).decode() for row, end in zip(traces, ends, strict=True)],
        "facts": [row.facts for row in traces],
    }
    # DuckDB finds these arrays by their name in the statement, and reads them faster than it binds parameters
    incoming = {name: np.array(values, object) for name, values in columns.items()}
    incoming["ended_at"] = np.array([row.ended_at for row in traces], float)
    names = ", ".join(incoming)
    cursor.execute(f"INSERT INTO exchanges ({names}) SELECT {names} FROM incoming")  # noqa: S608  our own names


def to_kind(row: ExchangeRow) -> str:
    """Give what many traces share as one text: to insert it takes no longer than each of its words would."""
    status = "" if row.status is None else str(row.status)
    return BETWEEN.join(
        (row.machine, row.method, row.path, row.state, row.event, status, row.model or "", row.moves)
    )  # fmt: skip


def select(cursor: DuckDBPyConnection, ids: Sequence[str]) -> dict[str, ResponseRow]:
    """Read the rows there are among `ids`, by id. Raises duckdb.Error."""
    places = ", ".join("?" * len(ids))
    found = cursor.execute(f"{SELECT}({places})", list(ids)).fetchall()
    return {row.id: row for row in (to_row(ResponseRow, values) for values in found)}


def to_row(kind: type[T], values: Sequence[object]) -> T:
    """Make a row of the values of all its fields, as they were read."""
    return convert(dict(zip(kind.__struct_fields__, values, strict=True)), kind)


def delete(cursor: DuckDBPyConnection, response_id: str) -> int:
    """Delete all there is of a response, and say whether there was anything. Raises duckdb.Error."""
    cursor.begin()
    try:
        count = withdraw(cursor, response_id)
        count += _count(cursor.execute("DELETE FROM jobs WHERE id = ?", [response_id]))
        cursor.execute("DELETE FROM events WHERE response_id = ?", [response_id])
        cursor.execute("UPDATE exchanges SET response_id = NULL WHERE response_id = ?", [response_id])
    except BaseException:
        cursor.rollback()
        raise
    cursor.commit()
    return count


def withdraw(cursor: DuckDBPyConnection, response_id: str) -> int:
    """Delete the row of a response, and say whether there was one. Raises duckdb.Error."""
    return _count(cursor.execute("DELETE FROM responses WHERE id = ?", [response_id]))


def delete_expired(cursor: DuckDBPyConnection, table: str, before: int, limit: int) -> int:
    """Delete up to `limit` rows of a table that ended before a second, and say how many. Raises duckdb.Error."""
    expired = f"SELECT rowid FROM {table} WHERE {EXPIRED[table]} LIMIT {limit:d}"  # noqa: S608  our own names
    return _count(cursor.execute(f"DELETE FROM {table} WHERE rowid IN ({expired})", [before]))  # noqa: S608


def _count(deleted: DuckDBPyConnection) -> int:
    (count,) = deleted.fetchone() or (0,)
    return int(count)


def _to_value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
