"""The statements of responses, and those that delete from any table. Values travel as parameters only."""

from collections.abc import Sequence
from typing import TypeVar

from duckdb import DuckDBPyConnection
from msgspec import Struct, convert

from storage.rows import EventRow, JobRow, ResponseRow

SELECT = f"SELECT {', '.join(ResponseRow.__struct_fields__)} FROM responses WHERE id IN "  # noqa: S608  our own names
TABLES: dict[type[Struct], str] = {ResponseRow: "responses", JobRow: "jobs", EventRow: "events"}
UNFINISHED = "(status = 'queued' OR status = 'in_progress')"
EXPIRED = {"responses": "expires_at < ?", "exchanges": "ended_at < ?", "jobs": f"expires_at < ? AND NOT {UNFINISHED}"}
Row = ResponseRow | JobRow | EventRow
T = TypeVar("T", bound=Struct)


def insert(cursor: DuckDBPyConnection, rows: Sequence[Row]) -> None:
    """Commit all the rows, which are of one table, or none. Raises duckdb.Error."""
    # a parameter a column: DuckDB binds one a value three times as slowly
    fields = rows[0].__struct_fields__
    columns = ", ".join("unnest(?::VARCHAR[][])" if field == "ancestors" else "unnest(?)" for field in fields)
    into = f"INSERT INTO {TABLES[type(rows[0])]} ({', '.join(fields)}) SELECT {columns}"
    cursor.execute(into, [[_to_value(getattr(row, field)) for row in rows] for field in fields])


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
        count += count_deleted(cursor.execute("DELETE FROM jobs WHERE id = ?", [response_id]))
        cursor.execute("DELETE FROM events WHERE response_id = ?", [response_id])
        cursor.execute("UPDATE exchanges SET response_id = NULL WHERE response_id = ?", [response_id])
    except BaseException:
        cursor.rollback()
        raise
    cursor.commit()
    return count


def withdraw(cursor: DuckDBPyConnection, response_id: str) -> int:
    """Delete the row of a response, and say whether there was one. Raises duckdb.Error."""
    return count_deleted(cursor.execute("DELETE FROM responses WHERE id = ?", [response_id]))


def delete_expired(cursor: DuckDBPyConnection, table: str, before: int, limit: int) -> int:
    """Delete up to `limit` rows of a table that ended before a second, and say how many. Raises duckdb.Error."""
    expired = f"SELECT rowid FROM {table} WHERE {EXPIRED[table]} LIMIT {limit:d}"  # noqa: S608  our own names
    return count_deleted(cursor.execute(f"DELETE FROM {table} WHERE rowid IN ({expired})", [before]))  # noqa: S608


def count_deleted(deleted: DuckDBPyConnection) -> int:
    """Tell how many rows the statement deleted that a cursor has just executed."""
    (count,) = deleted.fetchone() or (0,)
    return int(count)


def _to_value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
