"""From the name of a machine to its drawing, with a path through it lit or without."""

from collections.abc import Sequence
from functools import cache

from handlers.mapping.to_trace import Trace


@cache
def to_drawing(machine: str) -> str:
    """Draw a machine as SVG."""
    return _draw(machine, ())


@cache
def to_style() -> str:
    """Write the style of the drawings, for a page that allows no style within them."""
    from diagrams.stylesheet import to_stylesheet  # noqa: PLC0415 - nobody may ever ask for it

    return to_stylesheet()


def to_lit_drawing(trace: Trace) -> str:
    """Draw the machine that an exchange followed, the path that it took lit."""
    return _draw(trace.machine, [(move.event, move.source) for move in trace.moves])


def _draw(machine: str, path: Sequence[tuple[str, str]]) -> str:
    from diagrams.draw import SKETCHES  # noqa: PLC0415 - nobody may ever ask for one
    from diagrams.layout import to_svg  # noqa: PLC0415

    return to_svg(next(sketch for sketch in SKETCHES if sketch.table.name == machine), path=path)
