"""The store: rows put, chains read, both forgotten in time. What the rest of the server knows of storage is `Store`."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar

import duckdb

from storage.errors import ReadError, WriteError
from storage.jobs import begin_job, end_job, select_events, select_job, select_unfinished, sweep_jobs, tell
from storage.opening import Database, open_database
from storage.queries import delete, delete_expired, select, withdraw
from storage.rows import Chain, Cyclic, EventRow, ExchangeRow, JobRow, Lookup, Missing, ResponseRow, TooDeep, TraceQuery
from storage.traces import select_trace, select_traces
from storage.writer import Writer

log = logging.getLogger("interlock.storage")

T = TypeVar("T")

READERS = 2
MAX_DEPTH = 1000
TRACE_RETENTION = 604800
GATHERED_SECONDS = 1.0
SWEPT_AT_ONCE = 1000  # rows; puts that come meanwhile wait no longer than for these


class Store(Protocol):
    """Where responses are kept. Once closed, it refuses with WriteError and ReadError."""

    async def put(self, row: ResponseRow) -> None:
        """Return once the row is committed. Raises WriteError."""

    async def row(self, response_id: str, now: int) -> ResponseRow | Missing:
        """Read a row alone, whatever became of its ancestors, unless it is unknown or has expired. Raises ReadError."""

    async def chain(self, response_id: str, now: int, limit: int = MAX_DEPTH) -> Lookup:
        """Read a row and its ancestors, unless any is unknown, has expired, or they are too many. Raises ReadError."""

    async def delete(self, response_id: str) -> bool:
        """Delete all there is of a response, after all that was put before; False if there is nothing.

        Raises WriteError.
        """

    async def withdraw(self, response_id: str) -> bool:
        """Delete a row alone, after all that was put before; False if there is none. Raises WriteError."""

    async def sweep(self, now: int, trace_retention: int = TRACE_RETENTION) -> int:
        """Delete the rows that have expired and the traces older than `trace_retention` seconds; count the rows.

        Logs it if the file is lost. Raises WriteError.
        """

    async def begin_job(self, job: JobRow) -> None:
        """Return once a background response is committed. Raises WriteError."""

    async def tell(self, events: list[EventRow]) -> None:
        """Return once events of background responses are committed. Raises WriteError."""

    async def end_job(self, job: JobRow, events: list[EventRow]) -> None:
        """Return once its last events and how it ended are committed, both or neither. Raises WriteError."""

    async def job(self, job_id: str, now: int) -> JobRow | None:
        """Read a background response that has not expired. Raises ReadError."""

    async def told(self, job_id: str, after: int) -> list[EventRow]:
        """Read the events of a background response beyond a number, in order. Raises ReadError."""

    async def unfinished_jobs(self) -> list[JobRow]:
        """Read the background responses that have not ended. Raises ReadError."""

    def record(self, trace: ExchangeRow) -> None:
        """Keep a trace, soon; it may be dropped, and never raises."""

    @property
    def has_lost_file(self) -> bool:
        """Whether all that is kept is gone once the store is closed, for its file was deleted, moved or replaced."""

    @property
    def dropped_traces(self) -> int:
        """How many traces were not kept."""

    async def trace(self, exchange_id: str) -> ExchangeRow | None:
        """Read how an exchange went, once it has ended. Raises ReadError."""

    async def traces(self, asked: TraceQuery) -> list[ExchangeRow] | Missing:
        """Read a page of traces, the newest first; Missing if no trace has the id `after`. Raises ReadError."""

    async def close(self) -> None:
        """Commit what is queued and let go of the file. May be called twice."""


class DuckStore:
    """A Store in one DuckDB database: one thread writes, two read, each with its own cursor."""

    def __init__(self, database: Database, pace: float = 0.0) -> None:
        self._database = database
        self._writer_cursor = database.connection.cursor()
        self._writer = Writer(self._writer_cursor, pace)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="interlock-reader")
        self._cursors: SimpleQueue[duckdb.DuckDBPyConnection] = SimpleQueue()
        for _ in range(READERS):
            self._cursors.put(database.connection.cursor())
        self._closed = False
        self._closing = threading.Lock()

    async def put(self, row: ResponseRow) -> None:
        await self._writer.put(row)

    async def row(self, response_id: str, now: int) -> ResponseRow | Missing:
        return await self._read(partial(_read_row, response_id=response_id, now=now), f"The row of {response_id!r}")

    async def chain(self, response_id: str, now: int, limit: int = MAX_DEPTH) -> Lookup:
        look_up = partial(_read_chain, response_id=response_id, now=now, limit=limit)
        return await self._read(look_up, f"The chain of {response_id!r}")

    async def delete(self, response_id: str) -> bool:
        return bool(await self._writer.do(partial(delete, response_id=response_id), f"{response_id} was not deleted"))

    async def withdraw(self, response_id: str) -> bool:
        return bool(await self._writer.do(partial(withdraw, response_id=response_id), f"{response_id} was not deleted"))

    async def sweep(self, now: int, trace_retention: int = TRACE_RETENTION) -> int:
        if self.has_lost_file:
            log.error(
                "%s is not where it was; put it back, or its rows are gone once the server stops", self._database.file
            )
        await self._sweep(partial(delete_expired, table="exchanges", before=now - trace_retention), "exchanges")
        await self._writer.forget_kinds()
        await self._sweep(partial(sweep_jobs, before=now), "jobs")
        return await self._sweep(partial(delete_expired, table="responses", before=now), "responses")

    async def begin_job(self, job: JobRow) -> None:
        await self._writer.do(partial(begin_job, job=job), f"{job.id} was not written")

    async def tell(self, events: list[EventRow]) -> None:
        await self._writer.do(partial(tell, events=events), "Events were not written")

    async def end_job(self, job: JobRow, events: list[EventRow]) -> None:
        await self._writer.do(partial(end_job, job=job, events=events), f"{job.id} was not written")

    async def job(self, job_id: str, now: int) -> JobRow | None:
        return await self._read(partial(select_job, job_id=job_id, now=now), f"{job_id!r}")

    async def told(self, job_id: str, after: int) -> list[EventRow]:
        return await self._read(partial(select_events, job_id=job_id, after=after), f"The events of {job_id!r}")

    async def unfinished_jobs(self) -> list[JobRow]:
        return await self._read(select_unfinished, "The background responses")

    def record(self, trace: ExchangeRow) -> None:
        self._writer.record(trace)

    async def trace(self, exchange_id: str) -> ExchangeRow | None:
        await self._gathered()
        return await self._read(partial(select_trace, exchange_id=exchange_id), f"The trace of {exchange_id!r}")

    async def traces(self, asked: TraceQuery) -> list[ExchangeRow] | Missing:
        await self._gathered()
        return await self._read(partial(select_traces, asked=asked), "The traces")

    @property
    def has_lost_file(self) -> bool:
        return self._database.has_lost_file

    @property
    def dropped_traces(self) -> int:
        return self._writer.dropped

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close as `close` does, but block."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self.has_lost_file:
                log.error("%s is not where it was, so its rows are gone", self._database.file)
            self._writer.close()
            self._readers.shutdown()
            self._writer_cursor.close()
            for _ in range(READERS):
                self._cursors.get().close()
            self._database.close()

    async def _gathered(self) -> None:
        """Have the traces written that are gathered; a writer that hangs keeps nobody from those that are there."""
        with suppress(WriteError, TimeoutError):
            async with asyncio.timeout(GATHERED_SECONDS):
                await self._writer.do(lambda _: 0, "Traces were not written")

    async def _sweep(self, forget: Callable[..., int], table: str) -> int:
        portion = partial(forget, limit=SWEPT_AT_ONCE)
        swept, last = 0, SWEPT_AT_ONCE
        while last == SWEPT_AT_ONCE:
            last = await self._writer.do(portion, f"The table {table} was not swept")
            swept += last
        return swept

    async def _read(self, look_up: Callable[[duckdb.DuckDBPyConnection], T], what: str) -> T:
        try:
            reading = self._readers.submit(self._look_up, look_up, what)
        except RuntimeError as error:
            msg = f"{what} was not read, for the store is closed."
            raise ReadError(msg) from error
        return await asyncio.wrap_future(reading)

    def _look_up(self, look_up: Callable[[duckdb.DuckDBPyConnection], T], what: str) -> T:
        cursor = self._cursors.get()
        try:
            return look_up(cursor)
        except duckdb.Error as error:
            msg = f"{what} could not be read."
            raise ReadError(msg) from error
        finally:
            self._cursors.put(cursor)


def open_store(path: str, patience: float = 0.0, pace: float = 0.0) -> DuckStore:
    """Open the database at `path`, or make it; `:memory:` keeps nothing. Blocks; raises OpenError.

    A file another process holds is tried again for `patience` seconds: on a reload the old worker lets go a moment
    later. Commits of rows begin at least `pace` seconds apart.
    """
    return DuckStore(open_database(path, patience), pace)


def _read_row(cursor: duckdb.DuckDBPyConnection, response_id: str, now: int) -> ResponseRow | Missing:
    row = select(cursor, [response_id]).get(response_id)
    return Missing() if row is None or _has_expired(row, now) else row


def _read_chain(cursor: duckdb.DuckDBPyConnection, response_id: str, now: int, limit: int) -> Lookup:
    row = _read_row(cursor, response_id, now)
    if isinstance(row, Missing):
        return row
    if len({row.id, *row.ancestors}) <= len(row.ancestors):
        return Cyclic()
    if len(row.ancestors) >= limit:
        return TooDeep(len(row.ancestors) + 1)
    # A recursive query would scan the whole table at each step: half a second at a million rows.
    found = select(cursor, row.ancestors) if row.ancestors else {}
    ancestors = [found[ancestor] for ancestor in row.ancestors if ancestor in found]
    is_whole = len(ancestors) == len(row.ancestors) and not any(_has_expired(link, now) for link in ancestors)
    return Chain([*ancestors, row]) if is_whole else Missing()


def _has_expired(row: ResponseRow, now: int) -> bool:
    return row.expires_at is not None and row.expires_at <= now
