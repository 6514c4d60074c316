"""Lines of text in columns, which a pipe cuts as easily as an eye."""

from collections.abc import Sequence


def to_lines(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Align the cells of each column to the left, or to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths, right)).rstrip() for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> list[str]:
    return [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
