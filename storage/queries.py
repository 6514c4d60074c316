"""The two statements of the responses table: rows in, rows out. Values travel as parameters only."""

from collections.abc import Sequence

from duckdb import DuckDBPyConnection
from msgspec import convert
from msgspec.structs import asdict

from storage.rows import ResponseRow

FIELDS = ResponseRow.__struct_fields__
ONE_ROW = "(" + ", ".join("?::VARCHAR[]" if field == "ancestors" else "?" for field in FIELDS) + ")"
INSERT = f"INSERT INTO responses ({', '.join(FIELDS)}) VALUES "  # noqa: S608  the names are our own fields
SELECT = f"SELECT {', '.join(FIELDS)} FROM responses WHERE id IN "  # noqa: S608  the names are our own fields


def insert(cursor: DuckDBPyConnection, rows: Sequence[ResponseRow]) -> None:
    """Commit all the rows, or none. Raises duckdb.Error."""
    values = [value for row in rows for value in _to_values(row)]
    cursor.execute(INSERT + ", ".join([ONE_ROW] * len(rows)), values)


def select(cursor: DuckDBPyConnection, ids: Sequence[str]) -> dict[str, ResponseRow]:
    """Read the rows there are among `ids`, by id. Raises duckdb.Error."""
    places = ", ".join("?" * len(ids))
    found = cursor.execute(f"{SELECT}({places})", list(ids)).fetchall()
    return {row.id: row for row in map(_to_row, found)}


def _to_values(row: ResponseRow) -> list[object]:
    return list({**asdict(row), "ancestors": list(row.ancestors)}.values())


def _to_row(values: Sequence[object]) -> ResponseRow:
    return convert(dict(zip(FIELDS, values, strict=True)), ResponseRow)
