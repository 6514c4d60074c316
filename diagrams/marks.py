"""The marks of a drawing: a state, an event, a chip, an arrow, each with what it stands for.

The mark of one edge has `data-event`, `data-from` and `data-to`, that of a state `data-state`; an arrow, and what
frames many edges, has those of the three that its edges share. If a path is shown, what is on it is lit, the rest dim.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from diagrams.ink import to_answer, to_tooltip
from diagrams.sketch import Edge, Shared, Sketch, to_edges, to_label
from diagrams.svg import Point, arrow, box, mark, text, wide
from machines.table import Refusal

STATE: Point = (190, 44)
LINE, PAD = 15.0, 7.0


class Pen:
    """Draws the marks of one sketch."""

    def __init__(self, sketch: Sketch, path: Collection[tuple[str, str]]) -> None:
        self.sketch = sketch
        self.shows_path = bool(path)
        self.lit = {edge for edge in to_edges(sketch.table) if (edge.event, edge.source.name) in set(path)}
        self.met = {state for edge in self.lit for state in (edge.source, edge.target)}

    def state(self, at: Point, state: Enum) -> str:
        """Draw a state; its tooltip tells what it holds."""
        holds, outcome = self.sketch.table.holds.get(state, {}), self.sketch.outcome(state)
        kept = [f"{when}: {what if isinstance(what, str) else ', '.join(what)}" for when, what in holds.items()]
        said = str(state.value).upper() != state.name
        parts = [box(at, STATE, "state", outcome)]
        parts += [text((at[0] + 12, at[1] + (19 if said else 27)), state.name, "name", outcome)]
        parts += [text((at[0] + 12, at[1] + 35), str(state.value), "value", outcome)] if said else []
        title = "\n".join([f"{state.name}: {state.value}", *kept])
        return mark(self._kind("node", is_lit=state in self.met), {"state": state.name}, title, parts)

    def way(self, edges: Sequence[Edge], points: Sequence[Point], frame: Iterable[str] = ()) -> str:
        """Draw the arrow of the edges between two states, and what frames them."""
        source, _, target = edges[0]
        stands_for = {"from": source.name, "to": target.name}
        return mark(self._of("way", edges), stands_for, "", [arrow(points, self.sketch.outcome(target)), *frame])

    def events(self, at: Point, edges: Sequence[Edge]) -> list[str]:
        """Write the events beside an arrow, one below the other."""
        return [
            self._edge(e, [text((at[0], at[1] + LINE * line), self.sketch.label(e), "event", self._outcome(e))])
            for line, e in enumerate(edges)
        ]

    def chip(self, at: Point, size: Point, edge: Edge) -> str:
        """Draw an edge as a chip, with its status and code."""
        return self._edge(edge, chip(at, size, (self.sketch.label(edge), self.sketch.code(edge)), self._outcome(edge)))

    def shared(self, shared: Shared, parts: Iterable[str]) -> str:
        """Join what the edges of many states have in common."""
        stands_for = {"event": shared.event, "to": shared.target.name}
        told = to_tooltip(self.sketch, shared.edges[:1]).partition("\n")[2]
        return mark(self._of("way", shared.edges), stands_for, told, parts)

    def origin(self, at: Point, size: Point, edge: Edge) -> str:
        """Name one of the many states that an event leaves."""
        return self._edge(edge, [text((at[0], at[1] + size[1] - 2), edge.source.name, "code", self._outcome(edge))])

    def aside(self, parts: Iterable[str]) -> str:
        """Join words that stand for nothing, so that a path dims them too."""
        return mark(self._kind("aside", is_lit=False), {}, "", parts)

    def stateless(self, at: Point, size: Point, event: str, refusal: Refusal) -> str:
        """Draw a refusal that leaves no state."""
        parts = chip(at, size, (to_label(event, refusal), refusal.code or ""), "refused")
        return mark(self._kind("edge", is_lit=False), {"event": event}, "\n".join(to_answer(refusal)), parts)

    def _edge(self, edge: Edge, parts: Iterable[str]) -> str:
        stands_for = {"event": edge.event, "from": edge.source.name, "to": edge.target.name}
        return mark(self._of("edge", [edge]), stands_for, to_tooltip(self.sketch, [edge]), parts)

    def _outcome(self, edge: Edge) -> str:
        return self.sketch.outcome(edge.target)

    def _of(self, kind: str, edges: Iterable[Edge]) -> str:
        return self._kind(kind, is_lit=not self.lit.isdisjoint(edges))

    def _kind(self, kind: str, *, is_lit: bool) -> str:
        return f"{kind} {'lit' if is_lit else 'dim'}" if self.shows_path else kind


def chip(at: Point, size: Point, words: tuple[str, str], outcome: str) -> list[str]:
    """Draw a label, with a code below it if there is one."""
    label, code = words
    middle = at[1] + (14 if code else size[1] / 2 + 4)
    parts = [box(at, size, "chip", outcome), text((at[0] + PAD, middle), label, "event", outcome)]
    return [*parts, text((at[0] + PAD, at[1] + 27), code, "code", outcome)] if code else parts


def chip_size(label: str, code: str) -> Point:
    """Reckon how large a chip is at least."""
    return max(wide(label, "event"), wide(code, "code")) + 2 * PAD, 33 if code else 20
