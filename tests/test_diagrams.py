"""Holds the drawings to the tables: every row is drawn, nothing else is, and a stale file is named."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from diagrams.draw import HERE, SKETCHES, main, to_files
from diagrams.layout import to_svg
from diagrams.mermaid import to_mermaid, to_text
from diagrams.sketch import Sketch, to_edges, to_spine
from machines.exchange import EXCHANGE, REFUSALS
from machines.output import Item

EVERY_EDGE = [(sketch, edge) for sketch in SKETCHES for edge in to_edges(sketch.table)]
TEXT = "{http://www.w3.org/2000/svg}text"
TITLE = "{http://www.w3.org/2000/svg}title"
ARROW = re.compile(r"^ +(\w+) --> (\w+): (.+)$", re.MULTILINE)
MANY = re.compile(r'^ +state "(.+)" as (MANY_\d+)$', re.MULTILINE)


def by_edge(item):
    if isinstance(item, Sketch):
        return item.table.name
    return f"{item.source.name}-{item.event}" if hasattr(item, "event") else None


def named(sketch, words):
    """Read which states a drawing means by its words for many."""
    working = [state.name for state in sketch.table.states if state not in sketch.table.final]
    if stretch := re.fullmatch(r"any state from (\w+) to (\w+)", words):
        return working[working.index(stretch[1]) : working.index(stretch[2]) + 1]
    if words.startswith("any state"):
        return [name for name in working if name not in words.removeprefix("any state but ").split(", ")]
    return words.split(", ")


def arrows_in_mermaid(sketch):
    """Read the arrows back from the text, one for each event and state."""
    drawn = to_mermaid(sketch)
    many = {name: named(sketch, words) for words, name in MANY.findall(drawn)}
    return Counter(
        (state, label, target)
        for source, target, labels in ARROW.findall(drawn)
        for state in many.get(source, [source])
        for label in labels.split("<br/>")
    )


def words_in_svg(sketch, tag):
    return [element.text for element in ET.fromstring(to_svg(sketch)).iter(tag)]  # noqa: S314 our own text


def without(sketch, edge):
    """Take one row, for one of its states, from a table."""
    moves = [[e.event, e.source, e.target] for e in to_edges(sketch.table) if e != edge]
    return sketch._replace(table=replace(sketch.table, moves=moves))


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_mermaid_text_has_every_row_once_and_no_other(sketch):
    rows = [(edge.source.name, sketch.label(edge), edge.target.name) for edge in to_edges(sketch.table)]

    assert arrows_in_mermaid(sketch) == Counter(rows)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_the_svg_has_every_row_once_and_no_other(sketch):
    rows = [f"{edge.source.name} → {edge.target.name} on {edge.event}" for edge in to_edges(sketch.table)]

    lines = [line for title in words_in_svg(sketch, TITLE) for line in title.split("\n")]

    assert Counter(line for line in lines if " → " in line) == Counter(rows)


@pytest.mark.parametrize(("sketch", "edge"), EVERY_EDGE, ids=by_edge)
def test_the_svg_shows_a_row_without_its_tooltip(sketch, edge):
    shown = words_in_svg(sketch, TEXT)

    assert sketch.label(edge) in shown
    assert edge.target.name in shown


@pytest.mark.parametrize("event", REFUSALS)
def test_a_refusal_shows_its_status_and_tells_its_message(event):
    sketch, refusal = SKETCHES[0], REFUSALS[event]

    told = [title for title in words_in_svg(sketch, TITLE) if f" on {event}\n" in title]

    assert f"{refusal.status.value} {event}" in words_in_svg(sketch, TEXT)
    assert any(refusal.message in title for title in told)


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_edge)
def test_every_state_is_drawn(sketch):
    shown, drawn = words_in_svg(sketch, TEXT), to_mermaid(sketch)

    for state in sketch.table.states:
        assert state.name in shown
        assert f" as {state.name}\n" in drawn


@pytest.mark.parametrize(("sketch", "edge"), EVERY_EDGE, ids=by_edge)
def test_a_row_that_goes_changes_both_drawings(sketch, edge):
    less = without(sketch, edge)

    assert to_mermaid(less) != to_mermaid(sketch)
    assert to_svg(less) != to_svg(sketch)


@pytest.mark.parametrize(("sketch", "edge"), EVERY_EDGE, ids=by_edge)
def test_a_table_that_lacks_a_row_is_still_drawn_whole(sketch, edge):
    less = without(sketch, edge)
    titles = "\n".join(words_in_svg(less, TITLE))

    assert all(f"{e.source.name} → {e.target.name} on {e.event}" in titles for e in to_edges(less.table))
    assert sum(arrows_in_mermaid(less).values()) == len(to_edges(less.table))


def test_a_row_that_stays_where_it_is_is_drawn():
    output = next(sketch for sketch in SKETCHES if sketch.table.states is Item)
    more = output._replace(table=replace(output.table, moves=[*output.table.moves, ["text_grown", Item.MESSAGE, None]]))

    assert ("MESSAGE", "text_grown", "MESSAGE") in arrows_in_mermaid(more)
    assert "MESSAGE → MESSAGE on text_grown" in words_in_svg(more, TITLE)


def test_the_spine_of_the_exchange_ends_where_a_request_should():
    spine = [state.name for state in to_spine(EXCHANGE)]

    assert spine[0] == "ROUTING"
    assert spine[-3:] == ["EMITTING", "PERSISTING", "DONE"]
    assert "AWAITING_WRITE" not in spine


def test_what_a_row_says_is_escaped():
    sketch = SKETCHES[0]._replace(summary='<a> & "b"; #1: c')

    assert 'exchange: <a> & "b"; #1: c' in words_in_svg(sketch, TITLE)
    assert to_text(sketch.summary) == "#60;a#62; #38; #34;b#34;#59; #35;1#58; c"
    assert to_text(sketch.summary) in to_mermaid(sketch)


def test_an_svg_brings_its_own_paper_and_ink():
    for sketch in SKETCHES:
        drawn = to_svg(sketch)

        assert 'fill="#ffffff"/>' in drawn
        assert "text { font-family" in drawn
        assert "fill: #1f2328" in drawn


def test_no_mark_leaves_the_page():
    for sketch in SKETCHES:
        root = ET.fromstring(to_svg(sketch))  # noqa: S314 our own text
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            right = float(box.get("x", "0")) + float(box.get("width"))
            bottom = float(box.get("y", "0")) + float(box.get("height"))

            assert right <= float(root.get("width"))
            assert bottom <= float(root.get("height"))


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
