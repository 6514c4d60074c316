"""What a measurement finds: a row of the table, made from rounds in which both sides take turns."""

import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

Pair = tuple[float, float]


class Row(NamedTuple):
    """One line of the table: `other` is what ours is compared with, `goal` what the ratio should be."""

    name: str
    ours: str
    other: str = ""
    ratio: str = ""
    goal: str = ""
    met: str = ""


def rounds(one: Callable[[], float], other: Callable[[], float], count: int) -> list[Pair]:
    """Measure both sides in each round, the first by turns, for a noisy machine is noisy for both; round 0 warms up."""
    pairs = []
    for number in range(count + 1):
        if number % 2:
            pair = (one(), other())
        else:
            second = other()
            pair = (one(), second)
        print(f"  {pair[0]:.4g} against {pair[1]:.4g}{'' if number else ', to warm up'}", flush=True)
        pairs += [pair] if number else []
    return pairs


def compare(
    name: str, unit: str, pairs: Iterable[Pair], *, least: float | None = None, most: float | None = None
) -> Row:
    """Make the row of a comparison: medians of both sides, and the median ratio of one round with its extremes."""
    pairs = list(pairs)
    ratios = [one / other for one, other in pairs]
    ratio = statistics.median(ratios)
    ours, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    is_met = (least is None or ratio >= least) and (most is None or ratio <= most)
    goal = f">= {least:g}" if least is not None else f"<= {most:g}" if most is not None else ""
    return Row(
        name, f"{ours:.3g} {unit}", f"{other:.3g} {unit}", f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        goal, ("yes" if is_met else "no") if goal else "",
    )  # fmt: skip


def show(rows: Iterable[Row]) -> str:
    """Write rows as a Markdown table."""
    head = Row("what", "Interlock", "the other", "ratio (least to most of a round)", "goal", "met")
    lines = [head, Row(*["---"] * len(head)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
