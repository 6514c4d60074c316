"""Draws a sketch as SVG: the spine down the left, and beside each state of it what else can happen there."""

from collections.abc import Iterable, Sequence
from enum import Enum

from diagrams.ink import to_inks, to_tooltip
from diagrams.sketch import Edge, Shared, Sketch, to_edges, to_exits, to_shared, to_sidings, to_span, to_spine
from diagrams.svg import Point, arrow, box, page, text, titled, wide

WIDTH, MARGIN = 900.0, 24.0
STATE: Point = (190, 44)
BUS, SIDE, SIDING = 227.0, 246.0, 392.0  # where lines turn, where exits begin, where sidings stand
LINE, ROW, PAD = 15.0, 25.0, 7.0


class Drawing:
    """One SVG while it is drawn: the marks so far, and how far down the page they reach."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.spine = to_spine(sketch.table)
        self.sidings = to_sidings(sketch.table, self.spine)
        self.shared = to_shared(sketch.table, self.spine)
        once = {(shared.event, source) for shared in self.shared for source in shared.sources}
        self.edges = [edge for edge in to_edges(sketch.table) if (edge.event, edge.source) not in once]
        self.marks: list[str] = []
        self.y = MARGIN

    def between(self, source: Enum, target: Enum) -> list[Edge]:
        return [edge for edge in self.edges if edge.source is source and edge.target is target]

    def exits(self, source: Enum, drawn: Iterable[Enum]) -> dict[Enum, list[Edge]]:
        drawn = set(drawn)
        return to_exits(e for e in self.edges if e.source is source and e.target not in drawn)


def to_svg(sketch: Sketch, path: Sequence[tuple[str, str]] = ()) -> str:  # noqa: ARG001
    """Draw a machine as an SVG file."""
    drawing = Drawing(sketch)
    _heading(drawing)
    for state, after in zip(drawing.spine, [*drawing.spine[1:], None], strict=True):
        _stretch(drawing, state, after)
    if drawing.shared:
        _footer(drawing)
    title = f"{sketch.table.name}: {sketch.summary}"
    return page((WIDTH, drawing.y + MARGIN), title, to_inks(sketch), drawing.marks)


def _heading(drawing: Drawing) -> None:
    sketch, x = drawing.sketch, MARGIN
    drawing.marks += [text((x, drawing.y + 16), sketch.table.name, "h")]
    drawing.marks += [text((x + wide(sketch.table.name, "h") + 6, drawing.y + 16), sketch.summary, "say")]
    for outcome, ink in to_inks(sketch).items():
        drawing.marks += [box((x, drawing.y + 32), (22, 14), "group", outcome)]
        drawing.marks += [text((x + 29, drawing.y + 43), ink.meaning, "say")]
        x += 29 + len(ink.meaning) * 5.7 + 18
    drawing.y += 72


def _stretch(drawing: Drawing, state: Enum, after: Enum | None) -> None:
    """Draw a state of the spine, all that hangs on it, and the arrow to the next one."""
    top = drawing.y
    drawing.marks += [_state(drawing.sketch, (MARGIN, top), state)]
    for siding in drawing.sidings[state]:
        _siding(drawing, (top, drawing.y), state, siding)
    drawn = [*drawing.sidings[state], *([after] if after else [])]
    for target, edges in drawing.exits(state, drawn).items():
        start = (MARGIN + STATE[0], top + (STATE[1] - 6 if drawing.sidings[state] else STATE[1] / 2))
        drawing.marks += [arrow(_turned(start, (SIDE, drawing.y + STATE[1] / 2)), drawing.sketch.outcome(target))]
        drawing.y = _group(drawing, (SIDE, drawing.y + STATE[1] / 2 - ROW / 2 - PAD / 2), target, edges) + PAD
    onward = drawing.between(state, after) if after else []
    bottom = top + STATE[1]
    drawing.y = max(drawing.y + LINE, bottom + (len(onward) * LINE + 22 if after else 0))
    if after and onward:
        outcome = drawing.sketch.outcome(after)
        drawing.marks += [arrow([(MARGIN + 32, bottom), (MARGIN + 32, drawing.y)], outcome)]
        drawing.marks += _events(drawing.sketch, (MARGIN + 44, bottom + 20), onward)


def _turned(start: Point, end: Point) -> list[Point]:
    return [start, end] if start[1] == end[1] else [start, (BUS, start[1]), (BUS, end[1]), end]


def _state(sketch: Sketch, at: Point, state: Enum) -> str:
    holds = sketch.table.holds.get(state, {})
    kept = [f"{when}: {what if isinstance(what, str) else ', '.join(what)}" for when, what in holds.items()]
    outcome = sketch.outcome(state)
    said = str(state.value).upper() != state.name
    marks = [box(at, STATE, "state", outcome)]
    marks += [text((at[0] + 12, at[1] + (19 if said else 27)), state.name, "name", outcome)]
    marks += [text((at[0] + 12, at[1] + 35), str(state.value), "value", outcome)] if said else []
    return titled("\n".join([f"{state.name}: {state.value}", *kept]), marks)


def _events(sketch: Sketch, at: Point, edges: Sequence[Edge]) -> list[str]:
    return [
        titled(
            to_tooltip(sketch, [edge]),
            [text((at[0], at[1] + LINE * line), sketch.label(edge), "event", sketch.outcome(edge.target))],
        )
        for line, edge in enumerate(edges)
    ]


def _siding(drawing: Drawing, tops: Point, host: Enum, siding: Enum) -> None:
    """Draw a state beside its host: the way in above, the way back below, its other exits at its right."""
    sketch, (top, y) = drawing.sketch, tops
    into, back = drawing.between(host, siding), drawing.between(siding, host)
    way = y + LINE * max(len(into) - 1, 0) + 16
    left, start = (SIDING, way - 14), (MARGIN + STATE[0], top + 14)
    start = (start[0], way) if way < top + STATE[1] else start
    drawing.marks += [_state(sketch, left, siding)]
    if into:
        drawing.marks += [arrow(_turned(start, (SIDING, way)), sketch.outcome(siding))]
        drawing.marks += _events(sketch, (SIDE, way - 5 - LINE * (len(into) - 1)), into)
    if back:
        home = (start[0], way + 18 if way + 18 < top + STATE[1] else top + STATE[1] - 8)
        drawing.marks += [arrow(_turned((SIDING, way + 18), home), sketch.outcome(host))]
        drawing.marks += _events(sketch, (SIDE, way + 32), back)
    right = left[0] + STATE[0]
    bottom = left[1] + STATE[1]
    y = left[1] + STATE[1] / 2 - ROW / 2 - PAD / 2
    for target, edges in drawing.exits(siding, [host]).items():
        middle = y + ROW / 2 + PAD / 2
        drawing.marks += [arrow([(right, middle), (right + 24, middle)], sketch.outcome(target))]
        y = _group(drawing, (right + 24, y), target, edges) + PAD
        bottom = max(bottom, y)
    drawing.y = max(bottom, way + 18 + LINE * len(back)) + PAD


def _group(drawing: Drawing, at: Point, target: Enum, edges: Sequence[Edge]) -> float:
    """Draw the moves to one target as a box of chips; return where it ends."""
    sketch, outcome = drawing.sketch, drawing.sketch.outcome(target)
    x = left = at[0] + wide(target.name, "to") + 3 * PAD
    y, right, chips = at[1] + PAD / 2, left, []
    for edge in edges:
        width = wide(sketch.label(edge), "event") + 2 * PAD
        if x + width > WIDTH - MARGIN and x > left:
            x, y = left, y + ROW
        chips += [_chip(sketch, (x, y + 2.5), [edge], width)]
        x += width + PAD
        right = max(right, x)
    bottom = y + ROW + PAD / 2
    drawing.marks += [box(at, (right - at[0], bottom - at[1]), "group", outcome)]
    drawing.marks += [text((at[0] + PAD + 2, at[1] + PAD / 2 + 17), target.name, "to", outcome), *chips]
    return bottom


def _chip(sketch: Sketch, at: Point, edges: Sequence[Edge], width: float) -> str:
    outcome = sketch.outcome(edges[0].target)
    marks = [box(at, (width, ROW - 5), "chip", outcome)]
    marks += [text((at[0] + 7, at[1] + 14), sketch.label(edges[0]), "event", outcome)]
    return titled(to_tooltip(sketch, edges), marks)


def _footer(drawing: Drawing) -> None:
    drawing.y += LINE
    drawing.marks += [text((MARGIN, drawing.y + 12), "What can happen in many states", "name")]
    drawing.y += 24
    for shared in drawing.shared:
        _footnote(drawing, shared)


def _footnote(drawing: Drawing, shared: Shared) -> None:
    sketch, outcome = drawing.sketch, drawing.sketch.outcome(shared.target)
    at, name = (MARGIN, drawing.y), shared.target.name
    edges = [Edge(source, shared.event, shared.target) for source in shared.sources]
    width = wide(sketch.label(edges[0]), "event") + 14
    x = at[0] + PAD + wide("ABANDONED", "to") + 2 * PAD
    drawing.marks += [box(at, (WIDTH - 2 * MARGIN, ROW + PAD), "group", outcome)]
    drawing.marks += [text((at[0] + PAD + 2, at[1] + PAD / 2 + 17), name, "to", outcome)]
    drawing.marks += [_chip(sketch, (x, at[1] + PAD / 2 + 2.5), edges, width)]
    words = f"in {to_span(sketch.table, shared.sources)}"
    drawing.marks += [text((x + width + 12, at[1] + PAD / 2 + 17), words, "say", outcome)]
    drawing.y += ROW + 2 * PAD
