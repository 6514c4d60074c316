"""Where marks go: things side by side in rows, and lines that leave a state without crossing."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from diagrams.marks import PAD
from diagrams.svg import Point

WIDTH, MARGIN = 900.0, 24.0
SIDE, SIDING = 246.0, 390.0  # where exits begin, where sidings stand
GAP = 5.0  # between rows
HEAD = 16.0  # how far below the top of a box its arrow meets it


class Thing(NamedTuple):
    """Something to place: how large it is at least, and what draws it at a place in a size."""

    size: Point
    draw: Callable[[Point, Point], str]


def flow(things: Sequence[Thing], at: Point, right: float) -> tuple[list[str], Point]:
    """Place things side by side, in as many rows as they need; give the marks, and the far corner."""
    rows: list[list[tuple[float, Thing]]] = [[]]
    x, y, marks = at[0], at[1], list[str]()
    for thing in things:
        if rows[-1] and x + thing.size[0] > right:
            rows.append([])
            x = at[0]
        rows[-1].append((x, thing))
        x += thing.size[0] + PAD
    for row in rows:
        height = max(thing.size[1] for _, thing in row)
        marks += [thing.draw((left, y), (thing.size[0], height)) for left, thing in row]
        y += height + GAP
    return marks, (max(left + thing.size[0] for row in rows for left, thing in row), y - GAP)


class Ports:
    """Where the lines of a state's right side leave it, one below the other; each turns farther left than the last."""

    def __init__(self, right: float, top: float, lines: int) -> None:
        self.right = right
        self.first = top + (HEAD if lines > 1 else 22)
        self.gap = 22 / (lines - 1) if lines > 1 else 0.0
        self._turn = min(6.0, 16 / (lines - 1)) if lines > 1 else 0.0
        self._taken = 0

    def line_to(self, end: Point) -> list[Point]:
        """Lead a line from the next port to a point at the right."""
        y, x = self.first + self.gap * self._taken, self.right + 20 - self._turn * self._taken
        self._taken += 1
        return [(self.right, y), end] if abs(y - end[1]) < 1 else [(self.right, y), (x, y), (x, end[1]), end]
