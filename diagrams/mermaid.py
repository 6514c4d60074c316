"""Draws a sketch as Mermaid text, which GitHub renders.

Our own, for transitions' GraphMachine knows no status, writes a front matter Mermaid refuses, and makes one line of
eleven refusals and one edge of every `client_gone`.
"""

from collections.abc import Iterator
from enum import Enum

from diagrams.ink import to_inks
from diagrams.sketch import Sketch, to_edges, to_exits, to_shared, to_span, to_spine


def to_mermaid(sketch: Sketch) -> str:
    """Draw a machine as a Mermaid state diagram."""
    lines = [*_states(sketch), *_shared(sketch), *_edges(sketch), *_colours(sketch)]
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in lines), ""])


def to_text(words: str) -> str:
    """Write as Mermaid entities the characters that its grammar or HTML would read."""
    return "".join(f"#{ord(mark)};" if mark in "#;:&<>\"'`{}[]%\n" else mark for mark in words)


def _states(sketch: Sketch) -> Iterator[str]:
    yield f"accTitle: {to_text(sketch.table.name)}"
    yield f"accDescr: {to_text(sketch.summary)}"
    for state in sketch.table.states:
        words = "" if str(state.value).upper() == state.name else f"<br/>{to_text(str(state.value))}"
        yield f'state "{state.name}{words}" as {state.name}'
    yield f"[*] --> {sketch.table.initial.name}"


def _edges(sketch: Sketch) -> Iterator[str]:
    table = sketch.table
    drawn_once = {(s.event, source) for s in to_shared(table, to_spine(table)) for source in s.sources}
    for state in table.states:
        left = [edge for edge in to_edges(table) if edge.source is state and (edge.event, state) not in drawn_once]
        for target, edges in to_exits(left).items():
            yield _arrow(state.name, target, [sketch.label(edge) for edge in edges])
    yield from (f"{state.name} --> [*]" for state in table.states if state in table.final)


def _shared(sketch: Sketch) -> Iterator[str]:
    for number, shared in enumerate(to_shared(sketch.table, to_spine(sketch.table)), start=1):
        first = next(edge for edge in to_edges(sketch.table) if edge[1:] == (shared.event, shared.target))
        yield f'state "{to_text(to_span(sketch.table, shared.sources))}" as MANY_{number}'
        yield _arrow(f"MANY_{number}", shared.target, [sketch.label(first)])


def _arrow(source: str, target: Enum, labels: list[str]) -> str:
    return f"{source} --> {target.name}: {'<br/>'.join(map(to_text, labels))}"


def _colours(sketch: Sketch) -> Iterator[str]:
    for outcome, ink in to_inks(sketch).items():
        names = [state.name for state in sketch.table.states if sketch.outcome(state) == outcome]
        yield f"classDef {outcome} fill:{ink.fill},stroke:{ink.line},color:{ink.text}"
        yield f"class {','.join(names)} {outcome}"
    many = [f"MANY_{number + 1}" for number in range(len(to_shared(sketch.table, to_spine(sketch.table))))]
    if many:
        yield "classDef many fill:#ffffff,stroke:#57606a,color:#1f2328,stroke-dasharray:4"
        yield f"class {','.join(many)} many"
