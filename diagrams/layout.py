"""Draws a sketch as SVG: the happy path down the left, beside each state of it what else can happen there."""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise

from diagrams.ends import draw_ends, draw_stateless
from diagrams.flow import HEAD, MARGIN, SIDE, SIDING, WIDTH, Ports, Thing, flow
from diagrams.ink import to_inks
from diagrams.marks import LINE, PAD, STATE, Pen, chip, chip_size
from diagrams.sketch import Edge, Sketch, to_exits, to_plan
from diagrams.svg import Point, box, page, text, wide

SAMPLE = ("404 event", "code")


class Drawing:
    """One SVG while it is drawn: the marks so far, and how far down the page they reach."""

    def __init__(self, sketch: Sketch, path: Sequence[tuple[str, str]]) -> None:
        self.sketch = sketch
        self.pen = Pen(sketch, path)
        self.plan = to_plan(sketch)
        self.exits = to_exits(self.plan.edges)
        self.marks: list[str] = []
        self.y = MARGIN

    def between(self, source: Enum | None, target: Enum | None) -> list[Edge]:
        return self.exits.get((source, target), []) if source and target else []

    def exits_of(self, source: Enum, drawn: Iterable[Enum | None]) -> list[list[Edge]]:
        drawn = set(drawn)
        return [edges for (left, target), edges in self.exits.items() if left is source and target not in drawn]


def to_svg(sketch: Sketch, path: Sequence[tuple[str, str]] = ()) -> str:
    """Draw a machine as an SVG file; a path of (event, name of the state it left) is lit, the rest dimmed."""
    drawing = Drawing(sketch, path)
    _heading(drawing)
    for state, after in zip(drawing.plan.spine, [*drawing.plan.spine[1:], None], strict=True):
        _stretch(drawing, state, after)
    ends, drawing.y = draw_ends(drawing.pen, drawing.plan, drawing.y)
    stateless, drawing.y = draw_stateless(drawing.pen, drawing.y)
    drawing.marks += [*ends, *stateless]
    title = f"{sketch.table.name}: {sketch.summary}"
    return page((WIDTH, drawing.y + MARGIN), title, to_inks(sketch), drawing.marks)


def _heading(drawing: Drawing) -> None:
    sketch, x, y = drawing.sketch, MARGIN, drawing.y
    drawing.marks += [text((x, y + 16), sketch.table.name, "h")]
    drawing.marks += [text((x + wide(sketch.table.name, "h") + 14, y + 16), sketch.summary, "say")]
    for outcome, ink in to_inks(sketch).items():
        drawing.marks += [box((x, y + 32), (22, 14), "group", outcome)]
        drawing.marks += [text((x + 29, y + 43), ink.meaning, "say")]
        x += 29 + wide(ink.meaning, "say") + 18
    drawing.y += 64
    if sketch.refusals:
        size = chip_size(*SAMPLE)
        drawing.marks += chip((MARGIN, drawing.y - 4), size, SAMPLE, "refused")
        says = "the status, the row's event, the error's code; with the pointer on it, what the client is told"
        drawing.marks += [text((MARGIN + size[0] + 9, drawing.y + 16), says, "say")]
        drawing.y += 40
    drawing.y += 8


def _stretch(drawing: Drawing, state: Enum, after: Enum | None) -> None:
    """Draw a state of the spine, all that hangs on it, and the arrow to the next one."""
    top, sidings = drawing.y, drawing.plan.sidings[state]
    exits = drawing.exits_of(state, [*sidings, after])
    lines = [drawing.between(*ends) for siding in sidings for ends in ((state, siding), (siding, state))]
    ports = Ports(MARGIN + STATE[0], top, len([line for line in lines if line]) + len(exits))
    drawing.marks += [drawing.pen.state((MARGIN, top), state)]
    drawing.y, before = ports.first - HEAD, None
    for siding in sidings:
        before = _siding(drawing, ports, state, siding, before)
    for edges in exits:
        drawing.y = _group(drawing, ports, (SIDE, drawing.y), edges) + PAD
    onward, bottom = drawing.between(state, after), top + STATE[1]
    drawing.y = max(drawing.y + LINE, bottom + (len(onward) * LINE + 22 if after else 0))
    if onward:
        drawing.marks += _downward(drawing, MARGIN, (bottom, drawing.y), onward)


def _downward(drawing: Drawing, x: float, ends: Point, edges: Sequence[Edge]) -> list[str]:
    points = [(x + 32, ends[0]), (x + 32, ends[1])]
    return [drawing.pen.way(edges, points), *drawing.pen.events((x + 44, ends[0] + 20), edges)]


def _siding(
    drawing: Drawing, ports: Ports, host: Enum, siding: Enum, before: tuple[Enum, float] | None
) -> tuple[Enum, float]:
    """Draw a state beside its host: the way in, the way back below, its other exits at its right.

    Give it and where it ends; `before` is that of the siding above, which may lead here too.
    """
    pen, (above, end) = drawing.pen, before or (None, 0.0)
    into, back, along = (drawing.between(*ends) for ends in ((host, siding), (siding, host), (above, siding)))
    way = max(drawing.y + LINE * max(len(into) - 1, 0), end + LINE * len(along) + 22 if along else 0) + HEAD
    top = way - HEAD
    drawing.marks += [pen.state((SIDING, top), siding)]
    if into:
        drawing.marks += [pen.way(into, ports.line_to((SIDING, way)))]
        drawing.marks += pen.events((SIDE, way - 5 - LINE * (len(into) - 1)), into)
    if back:
        drawing.marks += [pen.way(back, ports.line_to((SIDING, way + ports.gap))[::-1])]
        drawing.marks += pen.events((SIDE, way + ports.gap + 14), back)
    if along:
        drawing.marks += _downward(drawing, SIDING, (end, top), along)
    drawing.y = max(_side_exits(drawing, (host, siding), top), way + ports.gap + LINE * len(back)) + PAD
    return siding, top + STATE[1]


def _side_exits(drawing: Drawing, ends: tuple[Enum, Enum], top: float) -> float:
    host, siding = ends
    sidings, right = drawing.plan.sidings[host], SIDING + STATE[0]
    below = dict(pairwise(sidings)).get(siding)
    exits = drawing.exits_of(siding, [host, below])
    ports = Ports(right, top, len(exits))
    y = ports.first - HEAD
    for edges in exits:
        y = _group(drawing, ports, (right + SIDE - MARGIN - STATE[0], y), edges) + PAD
    return max(y - PAD, top + STATE[1])


def _group(drawing: Drawing, ports: Ports, at: Point, edges: Sequence[Edge]) -> float:
    """Draw the moves to one target as a box of chips; give where it ends."""
    sketch, pen, target = drawing.sketch, drawing.pen, edges[0].target
    left, outcome = at[0] + wide(target.name, "to") + 3 * PAD, sketch.outcome(target)
    things = [Thing(chip_size(sketch.label(e), sketch.code(e)), partial(pen.chip, edge=e)) for e in edges]
    chips, (right, bottom) = flow(things, (left, at[1] + 6), WIDTH - MARGIN)
    frame = box(at, (right + PAD - at[0], bottom + 6 - at[1]), "group", outcome)
    name = text((at[0] + PAD + 2, at[1] + 20), target.name, "to", outcome)
    drawing.marks += [pen.way(edges, ports.line_to((at[0], at[1] + HEAD)), [frame, name]), *chips]
    return bottom + 6
