"""The colours and the words both kinds of drawing use. Fill and text are always given, so dark pages do no harm."""

from collections.abc import Iterable
from typing import NamedTuple

from diagrams.sketch import Edge, Sketch
from machines.table import Refusal


class Ink(NamedTuple):
    """How one outcome is coloured, and what the legend says of it."""

    fill: str
    line: str
    text: str
    meaning: str


INKS = {
    "progress": Ink("#ddf4ff", "#0969da", "#0a3069", "under way"),
    "delayed": Ink("#fff8c5", "#9a6700", "#4d2d00", "delayed"),
    "done": Ink("#dafbe1", "#1a7f37", "#0b4a1e", "done"),
    "refused": Ink("#fff1e0", "#bc4c00", "#7a2f00", "refused: an HTTP error"),
    "failed": Ink("#ffebe9", "#cf222e", "#82071e", "failed"),
    "abandoned": Ink("#eaeef2", "#57606a", "#32383f", "given up"),
}
PAPER, PENCIL = "#ffffff", "#1f2328"


def to_inks(sketch: Sketch) -> dict[str, Ink]:
    """Choose the inks a drawing needs."""
    needed = {sketch.outcome(state) for state in sketch.table.states}
    needed |= {"refused"} if sketch.stateless else set()
    return {outcome: ink for outcome, ink in INKS.items() if outcome in needed}


def to_tooltip(sketch: Sketch, edges: Iterable[Edge]) -> str:
    """Tell all a row says: the edge, and what the client is told."""
    edges = list(edges)
    told = dict.fromkeys(line for edge in edges for line in _answer(sketch, edge))
    return "\n".join([*(f"{e.source.name} → {e.target.name} on {e.event}" for e in edges), *told])


def to_answer(refusal: Refusal) -> list[str]:
    """Tell what a refused client is told."""
    told = [str(refusal.status.value), refusal.type]
    told += [f"code {refusal.code}"] if refusal.code else []
    told += [f"param {refusal.param}"] if refusal.param else []
    told += [f"retry after {refusal.retry_after} s"] if refusal.retry_after else []
    return [", ".join(told), refusal.message]


def _answer(sketch: Sketch, edge: Edge) -> list[str]:
    refusal, failure = sketch.refusal(edge), sketch.failure(edge)
    if refusal:
        return to_answer(refusal)
    if failure:
        return [f"{sketch.terminals.get(edge.event, 'response.failed')}, code {failure.code}", failure.message]
    leads = sketch.terminals.get(edge.event) if edge.target not in sketch.table.final else None
    return [f"sends {leads}"] if leads else []
