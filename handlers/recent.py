"""The moves of the last hour, counted in memory: a ring of buckets, each with a number for every row of every table."""

import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from machines.driver import Move
from machines.tables import TABLES

WIDTH = 10  # seconds of a bucket
LONGEST = 3600  # seconds that can be looked back


class Row(NamedTuple):
    """A move that a table allows."""

    machine: str
    event: str
    source: str
    target: str


ROWS = [Row(table.name, event, left.name, reached.name) for table in TABLES for event, left, reached in table.rows]
PLACES = {row[:3]: place for place, row in enumerate(ROWS)}
Bucket = tuple[int, "array[int]"]


class Recent:
    """Counts moves as they are made; to count one is to add 1 to a number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ring: deque[Bucket] = deque(maxlen=LONGEST // WIDTH + 1)
        self._number = -1
        self._counts = array("I")

    def add(self, machine: str, move: Move) -> None:
        """Count a move."""
        number = int(self._clock() // WIDTH)
        if number != self._number:
            self._number, self._counts = number, array("I", [0]) * len(ROWS)
            self._ring.append((number, self._counts))
        self._counts[PLACES[machine, move.event, move.source._name_]] += 1

    def since(self, seconds: float) -> dict[Row, int]:
        """Tell the moves of the last seconds and how often each was made; the bucket they begin in counts whole."""
        first = (self._clock() - seconds) // WIDTH
        buckets = [counts for number, counts in self._ring if number >= first]
        totals = (sum(counts) for counts in zip(*buckets, strict=True))
        return {row: count for row, count in zip(ROWS, totals, strict=False) if count}
