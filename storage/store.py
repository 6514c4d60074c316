"""The store: rows put, chains read. What the rest of the server knows of storage is `Store`."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol

import duckdb

from storage.errors import ReadError
from storage.opening import Database, open_database
from storage.queries import select
from storage.rows import ResponseRow
from storage.writer import Writer

READERS = 2


class Store(Protocol):
    """Where responses are kept. Once closed, it refuses with WriteError and ReadError."""

    async def put(self, row: ResponseRow) -> None:
        """Return once the row is committed. Raises WriteError."""

    async def chain(self, response_id: str, now: int) -> list[ResponseRow]:
        """Read a row and its ancestors, oldest first; [] if any is unknown or has expired. Raises ReadError."""

    async def close(self) -> None:
        """Commit what is queued and let go of the file. May be called twice."""


class DuckStore:
    """A Store in one DuckDB database: one thread writes, two read, each with its own cursor."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer_cursor = database.connection.cursor()
        self._writer = Writer(self._writer_cursor)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="interlock-reader")
        self._cursors: SimpleQueue[duckdb.DuckDBPyConnection] = SimpleQueue()
        for _ in range(READERS):
            self._cursors.put(database.connection.cursor())
        self._closed = False
        self._closing = threading.Lock()

    async def put(self, row: ResponseRow) -> None:
        await self._writer.put(row)

    async def chain(self, response_id: str, now: int) -> list[ResponseRow]:
        try:
            reading = self._readers.submit(self._chain, response_id, now)
        except RuntimeError as error:
            msg = f"The chain of {response_id} was not read, for the store is closed."
            raise ReadError(msg) from error
        return await asyncio.wrap_future(reading)

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close as `close` does, but block."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._writer.close()
            self._readers.shutdown()
            self._writer_cursor.close()
            for _ in range(READERS):
                self._cursors.get().close()
            self._database.close()

    def _chain(self, response_id: str, now: int) -> list[ResponseRow]:
        cursor = self._cursors.get()
        try:
            return _read_chain(cursor, response_id, now)
        except duckdb.Error as error:
            msg = f"The chain of {response_id} could not be read."
            raise ReadError(msg) from error
        finally:
            self._cursors.put(cursor)


def open_store(path: str, patience: float = 0.0) -> DuckStore:
    """Open the database at `path`, or make it; `:memory:` keeps nothing. Blocks; raises OpenError.

    A file another process holds is tried again for `patience` seconds: on a reload the old worker lets go a moment
    later.
    """
    return DuckStore(open_database(path, patience))


def _read_chain(cursor: duckdb.DuckDBPyConnection, response_id: str, now: int) -> list[ResponseRow]:
    # A recursive query would scan the whole table at each step: half a second at a million rows.
    row = select(cursor, [response_id]).get(response_id)
    if row is None:
        return []
    found = select(cursor, row.ancestors) if row.ancestors else {}
    chain = [*map(found.get, row.ancestors), row]
    alive = [link for link in chain if link is not None and not _has_expired(link, now)]
    return alive if len(alive) == len(chain) else []


def _has_expired(row: ResponseRow, now: int) -> bool:
    return row.expires_at is not None and row.expires_at <= now
