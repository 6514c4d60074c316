"""The foot of a drawing: the ends off the happy path, what leads there from many states, and refusals of no state."""

from enum import Enum
from functools import partial

from diagrams.flow import HEAD, MARGIN, SIDE, WIDTH, Ports, Thing, flow
from diagrams.marks import PAD, STATE, Pen, chip, chip_size
from diagrams.sketch import Plan, Shared, to_label
from diagrams.svg import Point, arrow, box, text, wide

IN = 20.0  # how much room the word "in" takes


def draw_ends(pen: Pen, plan: Plan, y: float) -> tuple[list[str], float]:
    """Draw each end that the happy path does not reach; give the marks, and where they end."""
    marks = list[str]()
    if plan.ends:
        marks += [text((MARGIN, y + 30), "The other ends", "name")]
        y += 44
    for end in plan.ends:
        drawn, y = _end(pen, plan, y, end)
        marks += drawn
    return marks, y


def draw_stateless(pen: Pen, y: float) -> tuple[list[str], float]:
    """Draw the refusals that leave no state."""
    rows = pen.sketch.stateless
    if not rows:
        return [], y
    things = [
        Thing(chip_size(to_label(event, row), row.code or ""), partial(pen.stateless, event=event, refusal=row))
        for event, row in rows.items()
    ]
    chips, (_, bottom) = flow(things, (MARGIN + PAD, y + 50), WIDTH - MARGIN - PAD)
    heading = text((MARGIN, y + 30), "Refused in any state, which stays as it is", "name")
    frame = box((MARGIN, y + 44), (WIDTH - 2 * MARGIN, bottom - y - 38), "group", "refused")
    return [heading, frame, *chips], bottom + 6


def _end(pen: Pen, plan: Plan, y: float, end: Enum) -> tuple[list[str], float]:
    shared = [each for each in plan.shared if each.target is end]
    sources = dict.fromkeys(edge.source.name for edge in plan.edges if edge.target is end)
    marks, ports = [pen.state((MARGIN, y), end)], Ports(MARGIN + STATE[0], y, len(shared))
    below = ports.first - HEAD if shared else y + 13
    for each in shared:
        drawn, bottom = _many(pen, ports, (SIDE, below), each)
        marks += drawn
        below = bottom + PAD
    if sources:
        drawn, (_, bottom) = flow(
            [_word(name) for name in ["as drawn above, from", *sources]], (SIDE, below), WIDTH - MARGIN
        )
        marks += [pen.aside(drawn)]
        below = bottom + PAD
    return marks, max(below, y + STATE[1]) + PAD


def _word(name: str) -> Thing:
    return Thing((wide(name, "code") + 2, 16), lambda at, size: text((at[0], at[1] + size[1] - 2), name, "code"))


def _many(pen: Pen, ports: Ports, at: Point, shared: Shared) -> tuple[list[str], float]:
    """Draw what leads to an end from many states: its event, and the states by name."""
    first, outcome = shared.edges[0], pen.sketch.outcome(shared.target)
    words = pen.sketch.label(first), pen.sketch.code(first)
    size = chip_size(*words)
    left, start = at[0] + PAD, at[0] + size[0] + 2 * PAD + IN
    origins = [Thing((wide(edge.source.name, "code") + 2, 16), partial(pen.origin, edge=edge)) for edge in shared.edges]
    names, (_, bottom) = flow(origins, (start, at[1] + 6), WIDTH - MARGIN - PAD)
    bottom = max(bottom, at[1] + 6 + size[1]) + 6
    parts = [arrow(ports.line_to((at[0], at[1] + HEAD))[::-1], outcome)]
    parts += [box(at, (WIDTH - MARGIN - at[0], bottom - at[1]), "group", outcome)]
    parts += [*chip((left, at[1] + 6), size, words, outcome), text((start - IN, at[1] + 20), "in", "say", outcome)]
    return [pen.shared(shared, parts), *names], bottom
