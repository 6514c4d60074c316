"""Draws a sketch as Mermaid text, which GitHub renders: a frame for each state of the happy path, one below the other.

In its frame stand the state, its sidings, and where they lead. Our own, for transitions' GraphMachine knows no status,
writes a front matter Mermaid refuses, and makes one line of eleven refusals and one edge of every `client_gone`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from diagrams.ink import to_inks
from diagrams.sketch import Edge, Plan, Sketch, to_exits, to_label, to_plan

SETTINGS = '%%{init: {"flowchart": {"wrappingWidth": 400, "nodeSpacing": 24, "rankSpacing": 32}}}%%'
NAMES, NOTES = 3, 2  # so many names stand in a line of many states, and so many of those side by side


def to_mermaid(sketch: Sketch) -> str:
    """Draw a machine as a Mermaid flowchart."""
    plan = to_plan(sketch)
    lines = [*_title(sketch), *_stages(sketch, plan), *_notes(sketch, plan), *_legend(sketch, plan)]
    return "\n".join([SETTINGS, "flowchart TB", *(f"    {line}" for line in lines), ""])


def to_text(words: str) -> str:
    """Write as Mermaid entities the characters that its grammar or HTML would read."""
    return "".join(f"#{ord(mark)};" if mark in "#;:&<>\"'`{}[]%\n" else mark for mark in words)


def _title(sketch: Sketch) -> Iterator[str]:
    yield f"accTitle: {to_text(sketch.table.name)}"
    yield f"accDescr: {to_text(sketch.summary)}"


def _stages(sketch: Sketch, plan: Plan) -> Iterator[str]:
    exits = to_exits(plan.edges)
    onward = {ends: exits.pop(ends) for ends in pairwise(plan.spine) if ends in exits}
    for host in plan.spine:
        states = [host, *plan.sidings[host]]
        yield f'subgraph AT_{host.name}[" "]'
        yield f"    direction {'TB' if plan.sidings[host] else 'LR'}"
        inside = {ends: edges for ends, edges in exits.items() if ends[0] in states}
        yield from (f"    {line}" for line in _inside(sketch, states, inside))
        yield "end"
    for (state, after), edges in onward.items():
        yield _arrow(sketch, f"AT_{state.name}", f"AT_{after.name}", edges)


def _inside(sketch: Sketch, states: Sequence[Enum], exits: Mapping[tuple[Enum, Enum], Sequence[Edge]]) -> Iterator[str]:
    """Draw the states of one frame; another state that they lead to is named in a box of its own."""
    for state in states:
        said = [] if str(state.value).upper() == state.name else [str(state.value)]
        yield _node(state.name, [state.name, *said], sketch.outcome(state))
    for (state, target), edges in exits.items():
        if target in states and target is not state:
            yield _arrow(sketch, state.name, target.name, edges)
        else:
            exit_to, labels = f"{state.name}_{target.name}", [_coded(sketch.label(e), sketch.code(e)) for e in edges]
            yield _node(exit_to, [target.name, *labels], sketch.outcome(target))
            yield f"{state.name} --> {exit_to}"


def _notes(sketch: Sketch, plan: Plan) -> Iterator[str]:
    """Draw below the last state what ends many states or none."""
    notes = [f"AT_{plan.spine[-1].name}"] * NOTES
    for number, shared in enumerate(plan.shared, start=1):
        label = _coded(sketch.label(shared.edges[0]), sketch.code(shared.edges[0]))
        names = [state.name for state in shared.sources]
        stretches = [", ".join(names[start : start + NAMES]) for start in range(0, len(names), NAMES)]
        notes.append(f"MANY_{number}")
        yield _node(notes[-1], [shared.target.name, label, "in", *stretches], sketch.outcome(shared.target))
    if sketch.stateless:
        labels = [_coded(to_label(event, row), row.code or "") for event, row in sketch.stateless.items()]
        notes.append("STATELESS")
        yield _node("STATELESS", ["refused in any state, which stays as it is", *labels], "refused")
    for above, below in zip(notes, [*notes[NOTES:], *["LEGEND"] * NOTES], strict=True):
        yield f"{above} ~~~ {below}"


def _legend(sketch: Sketch, plan: Plan) -> Iterator[str]:
    inks = to_inks(sketch)
    yield 'subgraph LEGEND[" "]'
    yield "    direction TB"
    yield from (f"    {_node(f'IS_{outcome}', [ink.meaning], outcome)}" for outcome, ink in inks.items())
    yield "end"
    yield from (f"classDef {name} fill:{ink.fill},stroke:{ink.line},color:{ink.text}" for name, ink in inks.items())
    yield "classDef frame fill:none,stroke:#8c959f"
    yield f"class {','.join(f'AT_{state.name}' for state in plan.spine)},LEGEND frame"


def _node(name: str, lines: Iterable[str], outcome: str) -> str:
    return f'{name}["{_lines(lines)}"]:::{outcome}'


def _arrow(sketch: Sketch, source: str, target: str, edges: Iterable[Edge]) -> str:
    return f'{source} -->|"{_lines(sketch.label(edge) for edge in edges)}"| {target}'


def _coded(label: str, code: str) -> str:
    return f"{label} ({code})" if code else label


def _lines(lines: Iterable[str]) -> str:
    return "<br/>".join(map(to_text, lines))
