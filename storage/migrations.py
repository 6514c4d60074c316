"""How the tables came to be: steps in order, each applied once and recorded. Append; never edit or reorder."""

import time
from collections.abc import Callable

from duckdb import DuckDBPyConnection


def create_responses(connection: DuckDBPyConnection) -> None:
    """Make the table of stored responses."""
    # Compressed, DuckDB would unpack thousands of texts to read one: seconds for a chain of long conversations.
    connection.execute("""
        CREATE TABLE responses (
            id VARCHAR PRIMARY KEY,
            previous_response_id VARCHAR,
            ancestors VARCHAR[] NOT NULL,
            created_at BIGINT NOT NULL,
            expires_at BIGINT,
            model VARCHAR NOT NULL,
            status VARCHAR NOT NULL,
            instructions VARCHAR USING COMPRESSION uncompressed,
            input_json VARCHAR NOT NULL USING COMPRESSION uncompressed,
            output_json VARCHAR NOT NULL USING COMPRESSION uncompressed,
            usage_json VARCHAR NOT NULL USING COMPRESSION uncompressed,
            config_json VARCHAR NOT NULL USING COMPRESSION uncompressed
        )
    """)


def create_exchanges(connection: DuckDBPyConnection) -> None:
    """Make the table of traces. It has no key: an index would cost more than the scan of a rare look-up."""
    connection.execute("""
        CREATE TABLE exchanges (
            id VARCHAR NOT NULL,
            ended_at BIGINT NOT NULL,
            method VARCHAR NOT NULL,
            path VARCHAR NOT NULL,
            state VARCHAR NOT NULL,
            event VARCHAR NOT NULL,
            status INTEGER,
            model VARCHAR,
            response_id VARCHAR,
            moves VARCHAR NOT NULL
        )
    """)


def create_jobs(connection: DuckDBPyConnection) -> None:
    """Make the tables of background responses and of their events."""
    connection.execute("""
        CREATE TABLE jobs (
            id VARCHAR PRIMARY KEY,
            created_at BIGINT NOT NULL,
            expires_at BIGINT NOT NULL,
            status VARCHAR NOT NULL,
            response_json VARCHAR NOT NULL USING COMPRESSION uncompressed,
            items_json VARCHAR NOT NULL USING COMPRESSION uncompressed
        )
    """)
    connection.execute("""
        CREATE TABLE events (
            response_id VARCHAR NOT NULL,
            number INTEGER NOT NULL,
            name VARCHAR NOT NULL,
            data VARCHAR NOT NULL USING COMPRESSION uncompressed,
            PRIMARY KEY (response_id, number)
        )
    """)


def widen_exchanges(connection: DuckDBPyConnection) -> None:
    """Have traces tell when they ended to less than a second, the table they followed and what was measured."""
    connection.execute("ALTER TABLE exchanges RENAME TO narrow_exchanges")
    connection.execute("""
        CREATE TABLE exchanges (
            id VARCHAR NOT NULL,
            ended_at DOUBLE NOT NULL,
            machine VARCHAR NOT NULL,
            method VARCHAR NOT NULL,
            path VARCHAR NOT NULL,
            state VARCHAR NOT NULL,
            event VARCHAR NOT NULL,
            status INTEGER,
            model VARCHAR,
            response_id VARCHAR,
            moves VARCHAR NOT NULL,
            facts VARCHAR NOT NULL
        )
    """)
    # rows that only the durable table has; what both have is drawn alike
    connection.execute("""
        INSERT INTO exchanges
        SELECT id, ended_at,
            CASE WHEN contains(moves, '"DISPATCHING","PERSISTING"') OR contains(moves, '["job_accepted",')
                THEN 'durable' ELSE 'exchange' END,
            method, path, state, event, status, model, response_id, moves, '{}'
        FROM narrow_exchanges
    """)
    connection.execute("DROP TABLE narrow_exchanges")


def share_kinds(connection: DuckDBPyConnection) -> None:
    """Keep as one text what many traces share: an insert costs by the column.

    Of moves the times go into a column of their own, whole microseconds as JSON. The view `traces` has all as it was;
    generated columns would be computed by each insert too.
    """
    connection.execute("ALTER TABLE exchanges RENAME TO wide_exchanges")
    connection.execute("""
        CREATE TABLE exchanges (
            id VARCHAR NOT NULL,
            ended_at DOUBLE NOT NULL,
            kind VARCHAR NOT NULL,
            response_id VARCHAR,
            micros VARCHAR NOT NULL,
            facts VARCHAR NOT NULL
        )
    """)
    _view_texts(connection)
    connection.execute("""
        INSERT INTO exchanges
        SELECT id, ended_at,
            concat(machine, chr(31), method, chr(31), path, chr(31), state, chr(31), event, chr(31), status, chr(31),
                replace(model, chr(31), ' '), chr(31), to_json([each[:3] for each in steps])),
            response_id,
            to_json([CAST(round(coalesce(TRY_CAST(each[4] AS DOUBLE), 0) * 1000) AS BIGINT) for each in steps]),
            facts
        FROM (SELECT *, coalesce(TRY_CAST(TRY_CAST(moves AS JSON) AS VARCHAR[][]), []) AS steps FROM wide_exchanges)
    """)
    connection.execute("DROP TABLE wide_exchanges")


def _view_texts(connection: DuckDBPyConnection) -> None:
    connection.execute("""
        CREATE VIEW traces AS SELECT
            id, ended_at,
            split_part(kind, chr(31), 1) AS machine,
            split_part(kind, chr(31), 2) AS method,
            split_part(kind, chr(31), 3) AS path,
            split_part(kind, chr(31), 4) AS state,
            split_part(kind, chr(31), 5) AS event,
            CAST(nullif(split_part(kind, chr(31), 6), '') AS INTEGER) AS status,
            nullif(split_part(kind, chr(31), 7), '') AS model,
            response_id,
            split_part(kind, chr(31), 8) AS moves,
            [each / 1000 for each in CAST(micros AS BIGINT[])] AS ms,
            facts
        FROM exchanges
    """)


def number_kinds(connection: DuckDBPyConnection) -> None:
    """Keep what many traces share as a row of its own: its traces have a number, not 500 characters."""
    connection.execute("DROP VIEW traces")
    connection.execute("ALTER TABLE exchanges RENAME TO texted_exchanges")
    _create_kinds(connection)
    connection.execute("""
        INSERT INTO exchanges
        SELECT id, ended_at, dense_rank() OVER (ORDER BY kind), response_id, micros, facts FROM texted_exchanges
    """)
    # an old path may have the separator too, for what nobody serves was once kept as it was asked for
    connection.execute("""
        INSERT INTO kinds
        SELECT row_number() OVER (ORDER BY kind), words[1], words[2], array_to_string(words[3:-6], chr(31)), words[-5],
            words[-4], CAST(nullif(words[-3], '') AS INTEGER), nullif(words[-2], ''), words[-1]
        FROM (SELECT DISTINCT kind, string_split(kind, chr(31)) AS words FROM texted_exchanges)
    """)
    connection.execute("DROP TABLE texted_exchanges")


def _create_kinds(connection: DuckDBPyConnection) -> None:
    """Make both tables, and the view that joins them."""
    connection.execute("""
        CREATE TABLE kinds (
            number INTEGER NOT NULL,
            machine VARCHAR NOT NULL, method VARCHAR NOT NULL, path VARCHAR NOT NULL,
            state VARCHAR NOT NULL, event VARCHAR NOT NULL, status INTEGER, model VARCHAR, moves VARCHAR NOT NULL
        )
    """)
    connection.execute("""
        CREATE TABLE exchanges (
            id VARCHAR NOT NULL, ended_at DOUBLE NOT NULL, kind INTEGER NOT NULL, response_id VARCHAR,
            micros VARCHAR NOT NULL, facts VARCHAR NOT NULL
        )
    """)
    connection.execute("""
        CREATE VIEW traces AS SELECT
            id, ended_at, machine, method, path, state, event, status, model, response_id, moves,
            [each / 1000 for each in CAST(micros AS BIGINT[])] AS ms,
            facts
        FROM exchanges JOIN kinds ON kind = number
    """)


MIGRATIONS: tuple[Callable[[DuckDBPyConnection], None], ...] = (
    create_responses, create_exchanges, create_jobs, widen_exchanges, share_kinds, number_kinds,
)  # fmt: skip


def recorded_version(connection: DuckDBPyConnection) -> int:
    """Tell how many migrations a database has had; 0 if it records none. Raises duckdb.Error."""
    if "interlock_migrations" not in _tables(connection):
        return 0
    newest = connection.execute("SELECT max(version) FROM interlock_migrations").fetchone()
    return (newest and newest[0]) or 0


def is_foreign(connection: DuckDBPyConnection) -> bool:
    """Tell whether a database has tables, but not ours. Raises duckdb.Error."""
    tables = _tables(connection)
    return bool(tables) and "interlock_migrations" not in tables


def migrate(connection: DuckDBPyConnection) -> None:
    """Apply the migrations a database has not had, all or none. Raises duckdb.Error."""
    connection.begin()
    try:
        _apply_missing(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _apply_missing(connection: DuckDBPyConnection) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS interlock_migrations"
        " (version INTEGER PRIMARY KEY, name VARCHAR NOT NULL, applied_at BIGINT NOT NULL)"
    )
    applied = recorded_version(connection)
    for version, migration in enumerate(MIGRATIONS[applied:], applied + 1):
        migration(connection)
        record = [version, migration.__name__, int(time.time())]
        connection.execute("INSERT INTO interlock_migrations VALUES (?, ?, ?)", record)


def _tables(connection: DuckDBPyConnection) -> set[str]:
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary"
        " UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary"
    )
    return {name for (name,) in found.fetchall()}
