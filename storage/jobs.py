"""The statements of background responses and their events. Values travel as parameters only."""

from collections.abc import Sequence

from duckdb import DuckDBPyConnection

from storage.queries import UNFINISHED, delete_expired, insert, to_row
from storage.rows import EventRow, JobRow

SELECT_JOBS = f"SELECT {', '.join(JobRow.__struct_fields__)} FROM jobs WHERE "  # noqa: S608  our own names
SELECT_EVENTS = f"SELECT {', '.join(EventRow.__struct_fields__)} FROM events WHERE "  # noqa: S608


def begin_job(cursor: DuckDBPyConnection, job: JobRow) -> int:
    """Commit a job that has begun. Raises duckdb.Error."""
    insert(cursor, [job])
    return 1


def tell(cursor: DuckDBPyConnection, events: Sequence[EventRow]) -> int:
    """Commit events, all or none. Raises duckdb.Error."""
    insert(cursor, events)
    return len(events)


def end_job(cursor: DuckDBPyConnection, job: JobRow, events: Sequence[EventRow]) -> int:
    """Commit the last events of a job and how it ended, both or neither; of one that was deleted, neither.

    Raises duckdb.Error.
    """
    cursor.begin()
    try:
        ended = [job.status, job.response_json, job.expires_at, job.id]
        cursor.execute("UPDATE jobs SET status = ?, response_json = ?, expires_at = ? WHERE id = ?", ended)
        is_there = cursor.execute("SELECT count(*) FROM jobs WHERE id = ?", [job.id]).fetchone() == (1,)
        if is_there and events:
            insert(cursor, events)
    except BaseException:
        cursor.rollback()
        raise
    cursor.commit()
    return int(is_there)


def sweep_jobs(cursor: DuckDBPyConnection, before: int, limit: int) -> int:
    """Delete up to `limit` jobs that ended and expired, then the events of jobs that are gone. Raises duckdb.Error."""
    count = delete_expired(cursor, "jobs", before, limit)
    cursor.execute("DELETE FROM events WHERE response_id NOT IN (SELECT id FROM jobs)")
    return count


def select_job(cursor: DuckDBPyConnection, job_id: str, now: int) -> JobRow | None:
    """Read a job that has not expired. Raises duckdb.Error."""
    found = cursor.execute(f"{SELECT_JOBS} id = ? AND expires_at > ?", [job_id, now]).fetchone()
    return None if found is None else to_row(JobRow, found)


def select_unfinished(cursor: DuckDBPyConnection) -> list[JobRow]:
    """Read the jobs that were under way when their server ended. Raises duckdb.Error."""
    return [to_row(JobRow, row) for row in cursor.execute(SELECT_JOBS + UNFINISHED).fetchall()]


def select_events(cursor: DuckDBPyConnection, job_id: str, after: int) -> list[EventRow]:
    """Read the events of a job beyond a number, in order. Raises duckdb.Error."""
    found = cursor.execute(f"{SELECT_EVENTS} response_id = ? AND number > ? ORDER BY number", [job_id, after])
    return [to_row(EventRow, row) for row in found.fetchall()]
