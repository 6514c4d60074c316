"""Every row of every machine is drawn, counted, fired and, where a client hears of it, in the README; no other is.

The second half tests the first: a row taken from a table, or put into it, is named by each comparison, and no other is.
"""

import asyncio
import re
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import pytest
from prometheus_client.parser import text_string_to_metric_families

import machines
from diagrams.draw import HERE, SKETCHES
from engine.scripted import ScriptedEngine
from handlers.app import create_app
from machines.table import Table
from tests.asgi import running
from tests.doubles import to_services
from tests.drawings import edges_in_mermaid, edges_in_svg
from tests.tables import Faults, compare, compare_fired, named

ERRORS = (HERE.parent / "README.md").read_text().partition("## Errors")[2].partition("\n## ")[0]
TELL_A_CLIENT = {"REFUSED", "FAILING"}
NONE = Faults(missing=set(), foreign=set())


def edges(sketch):
    return named(sketch.table) | {(event, "", "") for event in sketch.stateless}


def answers(sketch):
    return {(event, target) for event, _, target in edges(sketch) if target in TELL_A_CLIENT or not target}


def labels(sketch):
    return {event for event, _, _ in named(sketch.table)}


def in_svg(sketch):
    return set(edges_in_svg((HERE / f"{sketch.table.name}.svg").read_text()))


def in_mermaid(sketch):
    return set(edges_in_mermaid((HERE / f"{sketch.table.name}.mmd").read_text()))


def in_readme(sketch):
    """Read the error reference: three tables, and a note at the failures that one machine lacks."""
    refused, operators, failed = (
        re.findall(r"^\| `(\w+)`( \(.+?\))? \|", part, re.MULTILINE)
        for part in re.split(
            "^Operators who|^After the first frame", ERRORS.partition("]]] -->")[2], flags=re.MULTILINE
        )
    )
    both = {(event, "REFUSED") for event, _ in refused} | {(event, "FAILING") for event, note in failed if not note}
    told = {"exchange": both, "durable": both | {(event, "FAILING") for event, _ in failed}}
    return {**told, "binding": {(event, "") for event, _ in operators}}.get(sketch.table.name, set())


def in_metrics(sketch):
    return {event for machine, event in counted() if machine == sketch.table.name}


@cache
def counted():
    """Read the (machine, event) that a server counts before anything has happened."""
    families = text_string_to_metric_families(asyncio.run(scrape()))
    moves = next(family for family in families if family.name == "interlock_moves")
    return {(sample.labels["machine"], sample.labels["event"]) for sample in moves.samples}


async def scrape():
    async with running(create_app(to_services(ScriptedEngine(), None))) as client:
        return (await client.request("GET", "/metrics")).text


PLACES = {
    "svg": (edges, in_svg),
    "mermaid": (edges, in_mermaid),
    "readme": (answers, in_readme),
    "metrics": (labels, in_metrics),
}


def every_row(sketch):
    """Give, for each row, what is drawn without it, and with it once more under a name no row has."""
    for row in sketch.table.moves:
        yield with_moves(sketch, [move for move in sketch.table.moves if move is not row])
        yield with_moves(sketch, [*sketch.table.moves, ["row_added", *row[1:]]])
    for event, refusal in sketch.stateless.items():
        yield sketch._replace(refusals={name: row for name, row in sketch.refusals.items() if name != event})
        yield sketch._replace(refusals={**sketch.refusals, "row_added": refusal})


def with_moves(sketch, moves):
    return sketch._replace(table=replace(sketch.table, moves=moves))


def by_name(sketch):
    return sketch.table.name


def test_every_table_there_is_is_walked():
    modules = [import_module(f"machines.{found.name}") for found in iter_modules(machines.__path__)]
    tables = {id(thing) for module in modules for thing in vars(module).values() if isinstance(thing, Table)}

    assert tables == {id(sketch.table) for sketch in SKETCHES}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sketch", SKETCHES, ids=by_name)
def test_every_row_is_told_and_no_other(sketch, place):
    expected, told = PLACES[place]

    assert compare(expected(sketch), told(sketch)) == NONE


def test_no_machine_without_a_table_is_counted():
    assert {machine for machine, _ in counted()} <= {sketch.table.name for sketch in SKETCHES}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sketch", SKETCHES, ids=by_name)
def test_a_row_that_is_taken_or_added_is_named(sketch, place):
    expected, told = PLACES[place]
    in_place = told(sketch)

    for other in every_row(sketch):
        taken, added = edges(sketch) - edges(other), edges(other) - edges(sketch)
        assert taken or added
        assert compare(expected(other), in_place) == Faults(
            missing=expected(other) - expected(sketch), foreign=expected(sketch) - expected(other)
        )


@pytest.mark.parametrize("sketch", SKETCHES, ids=by_name)
def test_a_move_that_was_not_fired_is_named(sketch):
    tables = [each.table for each in SKETCHES]
    fired = {(table.name, *row) for table in tables for row in named(table)}
    assert compare_fired(tables, fired) == NONE

    for other in every_row(sketch):
        others = [other.table if table is sketch.table else table for table in tables]
        taken, added = (named(a.table) - named(b.table) for a, b in ((sketch, other), (other, sketch)))
        assert compare_fired(others, fired) == Faults(
            *({(sketch.table.name, *row) for row in rows} for rows in (added, taken))
        )


def test_a_row_that_both_tables_of_the_exchange_have_is_fired_by_either():
    tables = [each.table for each in SKETCHES]
    fired = {(table.name, *row) for table in tables for row in named(table)}
    once, again = (
        ("exchange", "route_found", "ROUTING", "VALIDATING"),
        ("durable", "route_found", "ROUTING", "VALIDATING"),
    )

    assert compare_fired(tables, fired - {once}) == NONE
    assert compare_fired(tables, fired - {once, again}) == Faults(missing={once, again}, foreign=set())
