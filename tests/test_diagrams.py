"""Holds the drawings to the tables: every row is drawn, nothing else is, and a stale file is named."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from diagrams.draw import HERE, SKETCHES, main, to_files
from diagrams.ink import INKS
from diagrams.layout import to_svg
from diagrams.mermaid import to_mermaid, to_text
from diagrams.sketch import Sketch, to_edges, to_plan
from diagrams.svg import SIZES, wide
from machines.exchange import REFUSALS
from machines.output import Item
from tests.drawings import SVG, edges_in_mermaid, edges_in_svg, marks_in_svg

EVERY_EDGE = [(sketch, edge) for sketch in SKETCHES for edge in to_edges(sketch.table)]
README_WIDTH = 900  # of a page on GitHub, about
SVGS = {sketch.table.name: to_svg(sketch) for sketch in SKETCHES}
MERMAIDS = {sketch.table.name: to_mermaid(sketch) for sketch in SKETCHES}
TEXT, TITLE, RECT = f"{SVG}text", f"{SVG}title", f"{SVG}rect"
WORD = r"(?:[^#;:&<>\"'`{}\[\]%]|#\d+;)+"
WORDS = rf'"{WORD}(?:<br/>{WORD})*"'
MERMAID = re.compile(
    rf"%%{{init: .+}}%%|flowchart TB|acc(?:Title|Descr): {WORD}"
    rf'|subgraph \w+\[" "\]|direction (?:LR|TB)|end|\w+\[{WORDS}\]:::\w+|\w+ (?:~~~|-->(?:\|{WORDS}\|)?) \w+'
    r"|classDef \w+ fill:[#\w]+,stroke:#\w+(?:,color:#\w+)?|class [\w,]+ frame"
)
HAPPY = {
    "exchange": "ROUTING VALIDATING BINDING RESOLVING PREPARING QUEUED DISPATCHING EMITTING PERSISTING DONE",
    "durable": "ROUTING VALIDATING BINDING RESOLVING PREPARING QUEUED DISPATCHING PERSISTING EMITTING DONE",
    "job": "QUEUED IN_PROGRESS COMPLETED",
    "output": "NONE REASONING MESSAGE CALL CUSTOM_CALL CLOSED",
    "write": "RESERVED IN_FLIGHT LANDED",
    "provisional": "PROVISIONAL KEPT",
    "binding": "LOADING READY DRAINING GONE",
}


def by_edge(item):
    if isinstance(item, Sketch):
        return item.table.name
    return f"{item.source.name}-{item.event}" if hasattr(item, "event") else None


def told(sketch):
    """List what a drawing has to show: (event, state left, state reached)."""
    rows = [(edge.event, edge.source.name, edge.target.name) for edge in to_edges(sketch.table)]
    return Counter([*rows, *((event, "", "") for event in sketch.stateless)])


def way_to(table, last):
    """Find a path that ends with an edge, as (event, name of the state left)."""
    ways = {table.initial: []}
    while last.source not in ways:
        found = [edge for edge in to_edges(table) if edge.source in ways and edge.target not in ways]
        ways.update({edge.target: [*ways[edge.source], edge] for edge in found})
    return [*ways[last.source], last]


def words_in(svg, tag):
    return [element.text for element in ET.fromstring(svg).iter(tag)]  # noqa: S314 our own text


def without(sketch, edge):
    """Take one row, for one of its states, from a table."""
    moves = [[e.event, e.source, e.target] for e in to_edges(sketch.table) if e != edge]
    return sketch._replace(table=replace(sketch.table, moves=moves))


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_mermaid_text_has_every_row_once_and_no_other(sketch):
    assert edges_in_mermaid(MERMAIDS[sketch.table.name]) == told(sketch)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_data_of_the_svg_has_every_row_once_and_no_other(sketch):
    assert edges_in_svg(SVGS[sketch.table.name]) == told(sketch)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_svg_has_every_state_once(sketch):
    drawn = [name for _, (name,) in marks_in_svg(SVGS[sketch.table.name], "state")]

    assert Counter(drawn) == Counter(state.name for state in sketch.table.states)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_an_arrow_is_drawn_once_between_two_states_or_for_an_event_of_many(sketch):
    drawn = SVGS[sketch.table.name]
    arrows = [ends for _, ends in marks_in_svg(drawn, "from", "to")]
    many = {(event, target) for _, (event, target) in marks_in_svg(drawn, "event", "to")}
    rest = {(source, target) for event, source, target in told(sketch) if source and (event, target) not in many}

    assert Counter(arrows) == Counter(rest)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_tooltips_of_the_svg_name_every_row_once_and_no_other(sketch):
    rows = [f"{source} → {target} on {event}" for event, source, target in told(sketch) if source]

    lines = [line for title in words_in(SVGS[sketch.table.name], TITLE) for line in title.split("\n")]

    assert Counter(line for line in lines if " → " in line) == Counter(rows)


@pytest.mark.parametrize(("sketch", "edge"), EVERY_EDGE, ids=by_edge)
def test_a_path_is_lit_and_nothing_else(sketch, edge):
    path = way_to(sketch.table, edge)
    ends = {(e.source.name, e.target.name) for e in path}

    drawn = to_svg(sketch, [(e.event, e.source.name) for e in path])

    assert lit(drawn, "event", "from", "to") == {(e.event, e.source.name, e.target.name) for e in path}
    assert lit(drawn, "state") == {(name,) for names in ends for name in names}
    many = {stands_for for _, stands_for in marks_in_svg(drawn, "event", "to")}
    shared = {(e.event, e.target.name) for e in path} & many
    alone = {(e.source.name, e.target.name) for e in path if (e.event, e.target.name) not in many}
    assert (lit(drawn, "event", "to"), lit(drawn, "from", "to")) == (shared, alone)


def lit(drawn, *names):
    """Read what is lit; all else is dim."""
    marks = list(marks_in_svg(drawn, *names))
    lights = {mark.get("class").partition(" ")[2] for mark, _ in marks}
    assert lights <= {"lit", "dim"}
    return {stands_for for mark, stands_for in marks if mark.get("class").endswith(" lit")}


def test_a_path_that_the_table_no_longer_has_lights_what_is_left_of_it():
    drawn = to_svg(SKETCHES[0], [("route_found", "ROUTING"), ("row_renamed", "VALIDATING")])

    assert lit(drawn, "event", "from", "to") == {("route_found", "ROUTING", "VALIDATING")}


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_without_a_path_nothing_is_lit_or_dim(sketch):
    assert not re.search(r'class="[^"]*\b(lit|dim)\b', SVGS[sketch.table.name])


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_svg_shows_every_row_without_its_tooltip(sketch):
    rows = to_edges(sketch.table)

    shown = set(words_in(SVGS[sketch.table.name], TEXT))

    assert {word for edge in rows for word in (sketch.label(edge), edge.source.name, edge.target.name)} <= shown
    assert {sketch.code(edge) for edge in rows if sketch.refusal(edge)} <= {"", *shown}


@pytest.mark.parametrize("event", REFUSALS)
def test_a_refusal_shows_its_status_and_tells_its_message(event):
    refusal, shown = REFUSALS[event], words_in(SVGS["exchange"], TEXT)

    told = [title for title in words_in(SVGS["exchange"], TITLE) if f" → REFUSED on {event}\n" in title]

    assert f"{refusal.status.value} {event}" in shown
    assert {refusal.code} <= {None, *shown}
    assert told
    assert all(refusal.message in title for title in told)


@pytest.mark.parametrize("event", REFUSALS)
def test_the_mermaid_text_shows_the_status_and_code_of_a_refusal(event):
    refusal = REFUSALS[event]
    code = f" ({refusal.code})" if refusal.code else ""

    assert re.search(rf'(<br/>){refusal.status.value} {event}{re.escape(code)}(<br/>|")', MERMAIDS["exchange"])


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_svg_has_a_legend_of_the_colours_it_uses(sketch):
    drawn = SVGS[sketch.table.name]
    used = {kinds[1] for kinds in re.findall(r'<rect [^>]+class="(\w+) (\w+)"', drawn)}

    assert {INKS[outcome].meaning for outcome in used} <= set(words_in(drawn, TEXT))
    assert all(f"rect.{outcome} {{ fill: {INKS[outcome].fill}" in drawn for outcome in used)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_mermaid_text_has_a_legend_of_the_colours_it_uses(sketch):
    drawn = MERMAIDS[sketch.table.name]

    for outcome in set(re.findall(r":::(\w+)", drawn)):
        assert f'IS_{outcome}["{to_text(INKS[outcome].meaning)}"]:::{outcome}\n' in drawn
        assert f"classDef {outcome} fill:{INKS[outcome].fill}," in drawn


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_every_state_is_in_the_mermaid_text(sketch):
    drawn = MERMAIDS[sketch.table.name]

    for state in sketch.table.states:
        assert re.search(rf'\["{state.name}(<br/>[^"]+)?"\]:::{sketch.outcome(state)}$', drawn, re.MULTILINE)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_mermaid_text_has_only_lines_that_mermaid_was_seen_to_take(sketch):
    drawn = MERMAIDS[sketch.table.name]

    assert [line for line in drawn.splitlines() if not MERMAID.fullmatch(line.strip())] == []


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_what_the_mermaid_text_names_is_there_once(sketch):
    drawn = MERMAIDS[sketch.table.name]
    made = re.findall(r'^ +(?:subgraph )?(\w+)\["', drawn, re.MULTILINE)
    joined = re.findall(r'^ +(\w+) (?:~~~|-->(?:\|".+"\|)?) (\w+)$', drawn, re.MULTILINE)

    assert len(made) == len(set(made))
    assert {name for ends in joined for name in ends} <= set(made)


@pytest.mark.parametrize(("sketch", "edge"), EVERY_EDGE, ids=by_edge)
def test_a_table_that_lacks_a_row_is_drawn_without_it(sketch, edge):
    less = without(sketch, edge)
    svg, mermaid = to_svg(less), to_mermaid(less)

    assert svg != SVGS[sketch.table.name]
    assert mermaid != MERMAIDS[sketch.table.name]
    assert edges_in_mermaid(mermaid) == edges_in_svg(svg) == told(less)


def test_a_row_that_stays_where_it_is_is_drawn():
    output = next(sketch for sketch in SKETCHES if sketch.table.states is Item)
    more = output._replace(
        table=replace(output.table, moves=[*output.table.moves, ["text_grown", Item.MESSAGE, Item.MESSAGE]])
    )

    assert ("text_grown", "MESSAGE", "MESSAGE") in edges_in_mermaid(to_mermaid(more))
    assert ("text_grown", "MESSAGE", "MESSAGE") in edges_in_svg(to_svg(more))


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_happy_path_is_one_straight_line(sketch):
    happy = HAPPY[sketch.table.name].split()
    places = {name: mark.find(RECT) for mark, (name,) in marks_in_svg(SVGS[sketch.table.name], "state")}
    tops = [float(places[name].get("y")) for name in happy]

    assert [state.name for state in to_plan(sketch).spine] == happy
    assert {places[name].get("x") for name in happy} == {"24"}
    assert tops == sorted(tops)


def test_what_a_row_says_is_escaped():
    sketch = SKETCHES[0]._replace(summary='<a> & "b"; #1: c')

    assert 'exchange: <a> & "b"; #1: c' in words_in(to_svg(sketch), TITLE)
    assert to_text(sketch.summary) == "#60;a#62; #38; #34;b#34;#59; #35;1#58; c"
    assert to_text(sketch.summary) in to_mermaid(sketch)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_all_colours_are_rules_on_classes_under_the_diagram(sketch):
    drawn = to_svg(sketch, [(to_edges(sketch.table)[0].event, sketch.table.initial.name)])
    style, body = re.search("<style>\n(.*)\n</style>(.*)", drawn, re.DOTALL).groups()

    assert not re.search("(fill|stroke|style)=", body)
    assert {rule.split()[0] for rule in style.split("\n")} == {".diagram"}
    assert all(f".{kind} {{" in style or f".{kind}." in style for kind in ("paper", "head", "arrow", "dim"))


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_rows_are_grouped_by_the_state_they_leave_and_have_the_colour_of_the_one_they_reach(sketch):
    drawn, outcomes = SVGS[sketch.table.name], {state.name: sketch.outcome(state) for state in sketch.table.states}
    framed = {ends: mark.find(RECT) for mark, ends in marks_in_svg(drawn, "from", "to")}
    frames = {ends: to_corners(frame) for ends, frame in framed.items() if frame is not None}
    rows = {row: mark.find(RECT) for mark, row in marks_in_svg(drawn, "event", "from", "to")}
    chips = {row: chip for row, chip in rows.items() if chip is not None}

    assert frames.keys() <= {row[1:] for row in chips}
    for row, chip in chips.items():
        assert chip.get("class") == f"chip {outcomes[row[2]]}"
        around = [ends for ends, frame in frames.items() if overlap(to_corners(chip), frame)]
        assert around == [ends for ends in frames if ends == row[1:]]
    for mark, (name,) in marks_in_svg(drawn, "state"):
        assert mark.find(RECT).get("class") == f"state {outcomes[name]}"


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_no_mark_leaves_the_page(sketch):
    root = ET.fromstring(SVGS[sketch.table.name])  # noqa: S314 our own text
    width, height = float(root.get("width")), float(root.get("height"))

    assert width <= README_WIDTH
    for left, top, right, bottom in (to_corners(mark) for mark in root.iter() if mark.tag in {RECT, TEXT}):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_no_mark_lies_on_another(sketch):
    root = ET.fromstring(SVGS[sketch.table.name])  # noqa: S314 our own text
    kinds = {mark: mark.get("class", "").split()[0] for mark in root.iter() if mark.tag in {RECT, TEXT}}
    boxes = [mark for mark, kind in kinds.items() if kind in {"state", "chip"}]
    groups = [mark for mark, kind in kinds.items() if kind == "group"]
    words = [mark for mark, kind in kinds.items() if mark.tag == TEXT]

    for some in (boxes, groups, words):
        assert not [pair for pair in combinations(map(to_corners, some), 2) if overlap(*pair)]


def to_corners(mark):
    """Give left, top, right and bottom of a box, or of text as its letters are reckoned."""
    left, top, kind = float(mark.get("x", 0)), float(mark.get("y", 0)), mark.get("class").split()[0]
    if mark.tag == RECT:
        return left, top, left + float(mark.get("width")), top + float(mark.get("height"))
    return left, top - 0.7 * SIZES[kind], left + wide(mark.text, kind), top + 0.2 * SIZES[kind]


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_two_drawings_of_one_table_are_the_same():
    assert to_files(SKETCHES) == to_files(SKETCHES)


def test_the_committed_drawings_are_fresh(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_nothing_in_the_folder_is_drawn_by_nobody():
    drawn = {path.name for path in HERE.iterdir() if path.suffix in {".mmd", ".svg"}}

    assert drawn == set(to_files(SKETCHES))


def test_what_was_just_drawn_is_fresh(tmp_path):
    assert main(["--out", str(tmp_path / "new")]) == 0

    assert main(["--check", "--out", str(tmp_path / "new")]) == 0


@pytest.mark.parametrize("name", to_files(SKETCHES))
def test_a_stale_drawing_is_named_with_its_cure(name, tmp_path, capsys):
    main(["--out", str(tmp_path)])
    Path(tmp_path, name).write_text("old", encoding="utf-8")

    status = main(["--check", "--out", str(tmp_path)])

    told = capsys.readouterr().err.splitlines()
    assert status == 1
    assert len(told) == 1
    assert name in told[0]
    assert "python -m diagrams.draw" in told[0]


@pytest.mark.parametrize("name", to_files(SKETCHES))
def test_a_missing_drawing_is_named(name, tmp_path, capsys):
    main(["--out", str(tmp_path)])
    Path(tmp_path, name).unlink()

    assert main(["--check", "--out", str(tmp_path)]) == 1
    assert name in capsys.readouterr().err
