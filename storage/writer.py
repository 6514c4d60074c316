"""The one thread that writes. It commits in groups: most of a commit's time is spent once, however many rows."""

import asyncio
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

import duckdb

from storage.errors import WriteError
from storage.queries import insert
from storage.rows import ResponseRow

GROUP_ROWS = 100
GROUP_CHARACTERS = 8_000_000  # a group's values are held twice, here and in DuckDB


class Put(NamedTuple):
    """A row on its way, and the future its putter awaits."""

    row: ResponseRow
    committed: asyncio.Future[None]


class Writer:
    """Takes rows from event loops, and tells each when it is committed or why it is not."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._puts: SimpleQueue[Put | None] = SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="interlock-writer", daemon=True)
        self._thread.start()

    def put(self, row: ResponseRow) -> asyncio.Future[None]:
        """Queue a row. The future ends when it is committed, or with WriteError; raises WriteError if closed."""
        committed = asyncio.get_running_loop().create_future()
        with self._closing:
            if self._closed:
                msg = f"{row.id} was not written, for the store is closed."
                raise WriteError(msg)
            self._puts.put(Put(row, committed))
        return committed

    def close(self) -> None:
        """Write what is queued, then end the thread. Blocks."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._puts.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._take():
            self._write(group)

    def _take(self) -> list[Put]:
        first = self._puts.get()
        if first is None:
            return []
        group, size = [first], _size(first.row)
        while len(group) < GROUP_ROWS and size < GROUP_CHARACTERS:
            try:
                put = self._puts.get_nowait()
            except Empty:
                break
            if put is None:
                self._puts.put(None)
                break
            group.append(put)
            size += _size(put.row)
        return group

    def _write(self, group: list[Put]) -> None:
        try:
            insert(self._cursor, [put.row for put in group])
        except Exception as broken:  # noqa: BLE001  the thread must outlive any row
            if len(group) > 1:
                for put in group:
                    self._write([put])
            else:
                _settle(group[0], broken)
        else:
            for put in group:
                _settle(put, None)


def _size(row: ResponseRow) -> int:
    return len(row.input_json) + len(row.output_json) + len(row.instructions or "")


def _settle(put: Put, broken: Exception | None) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
        put.committed.get_loop().call_soon_threadsafe(_end, put, broken)


def _end(put: Put, broken: Exception | None) -> None:
    if put.committed.done():
        return
    if broken is None:
        put.committed.set_result(None)
        return
    error = WriteError(f"{put.row.id} could not be written.")
    error.__cause__ = broken
    put.committed.set_exception(error)
