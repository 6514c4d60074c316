"""The one thread that writes. It commits in groups: most of a commit's time is spent once, however many rows.

So under load it lets some rows come together: the commits of rows begin at least `pace` seconds apart.

Whoever queues a row or a task awaits a future. Traces come from exchanges that wait for nothing, so they are bounded,
and gathered for a moment: a commit for each would cost more than all the rest of its exchange.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

from duckdb import DuckDBPyConnection

from storage.errors import WriteError
from storage.queries import insert
from storage.rows import ExchangeRow, ResponseRow
from storage.traces import TraceWriter

log = logging.getLogger("interlock.storage")

GROUP_ROWS = 100
GROUP_CHARACTERS = 8_000_000  # a group's values are held twice, here and in DuckDB
GROUP_TRACES = 2000  # a statement costs as much as hundreds of them
TRACES_WAITING = 6000
GATHERING = 2.0  # seconds until a trace is written that no others came to join

Work = Callable[[DuckDBPyConnection], int]


class Put(NamedTuple):
    """A row on its way, and the future its putter awaits."""

    row: ResponseRow
    committed: asyncio.Future[int]


class Task(NamedTuple):
    """Other work on the database, what to say if it breaks, and the future that takes its result."""

    work: Work
    broken: str
    done: asyncio.Future[int]


Entry = Put | Task | Literal["traces"]


class Writer:
    """Takes work from event loops, does it in that order, and tells each when it is committed or why it is not."""

    def __init__(self, cursor: DuckDBPyConnection, pace: float = 0.0) -> None:
        self.dropped = 0
        self._cursor = cursor
        self._trace_writer = TraceWriter(cursor)
        self._pace = pace
        self._paced_until = 0.0  # by the monotonic clock
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        self._traces: list[ExchangeRow] = []
        self._gathered_at = 0.0  # by the monotonic clock: when they are to be written at the latest
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="interlock-writer", daemon=True)
        self._thread.start()

    def put(self, row: ResponseRow) -> asyncio.Future[int]:
        """Queue a row. The future ends when it is committed, or with WriteError; raises WriteError if closed."""
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._enqueue(Put(row, committed), f"{row.id} was not written")
        return committed

    def do(self, work: Work, broken: str) -> asyncio.Future[int]:
        """Queue work of another kind; as `put`. `broken` is the start of the sentence that says it failed."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._enqueue(Task(work, broken, done), broken)
        return done

    def record(self, row: ExchangeRow) -> None:
        """Queue a trace; it is dropped, and counted, if too many wait or the writer is closed."""
        with self._lock:
            if self._closed or len(self._traces) >= TRACES_WAITING:
                self.dropped += 1
                return
            self._traces.append(row)
            # to wake the thread costs more than the trace: the first sets its alarm, and a whole group is written
            if len(self._traces) == 1:
                self._gathered_at = time.monotonic() + GATHERING
                self._queue.put("traces")
            elif len(self._traces) == GROUP_TRACES:
                self._queue.put("traces")

    def forget_kinds(self) -> asyncio.Future[int]:
        """Queue the deletion of what only traces shared that are gone; as `do`."""
        return self.do(self._trace_writer.forget, "The table kinds was not swept")

    def close(self) -> None:
        """Write what is queued, then end the thread. Blocks."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _enqueue(self, entry: Put | Task, refused: str) -> None:
        with self._lock:
            if self._closed:
                msg = f"{refused}, for the store is closed."
                raise WriteError(msg)
            self._queue.put(entry)

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._take()
            for kind, entries in groupby(group, type):
                if kind is Put:
                    self._write([entry for entry in entries if isinstance(entry, Put)])
                else:
                    self._do([entry for entry in entries if isinstance(entry, Task)])
            if not is_open or len(self._traces) >= GROUP_TRACES or self._patience() == 0:
                self._write_traces()

    def _patience(self) -> float | None:
        """Tell how long the traces may wait still; None if there are none."""
        with self._lock:
            return max(0.0, self._gathered_at - time.monotonic()) if self._traces else None

    def _take(self) -> tuple[list[Put | Task], bool]:
        """Wait for work, or until traces are to be written, and take a group of it; False once the writer is closed."""
        group: list[Put | Task] = []
        size = 0
        with suppress(Empty):
            entry = self._queue.get(timeout=self._patience())
            while entry is not None:
                if entry == "traces":
                    return group, True
                group.append(entry)
                size += _size(entry)
                if len(group) >= GROUP_ROWS or size >= GROUP_CHARACTERS:
                    return group, True
                left = 0.0 if isinstance(entry, Task) else self._paced_until - time.monotonic()
                entry = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            return group, False
        return group, True

    def _write(self, group: list[Put]) -> None:
        self._paced_until = time.monotonic() + self._pace
        try:
            insert(self._cursor, [put.row for put in group])
        except Exception as broken:  # noqa: BLE001  the thread must outlive any row
            if len(group) > 1:
                for put in group:
                    self._write([put])
            else:
                _fail(group[0].committed, f"{group[0].row.id} could not be written", broken)
        else:
            _settle([put.committed for put in group], 1)

    def _do(self, tasks: list[Task]) -> None:
        self._write_traces()
        for task in tasks:
            try:
                _settle([task.done], task.work(self._cursor))
            except Exception as broken:  # noqa: BLE001  the thread must outlive any work
                _fail(task.done, task.broken, broken)

    def _write_traces(self) -> None:
        with self._lock:
            traces, self._traces = self._traces, []
        groups = [traces[at : at + GROUP_TRACES] for at in range(0, len(traces), GROUP_TRACES)]
        broken = [error for group in groups for error in self._insert_traces(group)]
        if broken:
            log.warning("%d traces could not be written; what broke the first:", len(broken), exc_info=broken[0])
            with self._lock:
                self.dropped += len(broken)

    def _insert_traces(self, traces: list[ExchangeRow]) -> list[Exception]:
        """Insert those that can be, and give an error for each of the others."""
        try:
            self._trace_writer.insert(traces)
        except Exception as error:  # noqa: BLE001  the thread must outlive any trace
            broken = error
        else:
            return []
        if len(traces) == 1:
            return [broken]
        middle = len(traces) // 2
        return self._insert_traces(traces[:middle]) + self._insert_traces(traces[middle:])


def _size(entry: Put | Task) -> int:
    if isinstance(entry, Task):
        return 0
    row = entry.row
    return len(row.input_json) + len(row.output_json) + len(row.instructions or "")


def _fail(future: asyncio.Future[int], what: str, cause: Exception) -> None:
    error = WriteError(f"{what}.")
    error.__cause__ = cause
    _settle([future], error)


def _settle(futures: list[asyncio.Future[int]], result: int | WriteError) -> None:
    for loop, ended in groupby(futures, asyncio.Future.get_loop):
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(_end, list(ended), result)


def _end(futures: list[asyncio.Future[int]], result: int | WriteError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, WriteError):
            future.set_exception(result)
        else:
            future.set_result(result)
