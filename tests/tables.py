"""A machine's table, taken apart for the tests that walk it."""

from typing import NamedTuple


class Faults(NamedTuple):
    """How what is told of a table differs from it."""

    missing: set
    foreign: set


def compare(rows, told):
    """Tell which rows are not told, and what is told that is no row."""
    return Faults(rows - told, told - rows)


def rows(table):
    """Give (event, state left, state reached) of every row, one for each state it leaves."""
    for event, sources, target in table.moves:
        for state in sources if isinstance(sources, list) else [sources]:
            yield event, state, target


def named(table):
    """Give the rows by the names of their states."""
    return {(event, state.name, target.name) for event, state, target in rows(table)}


def compare_fired(tables, fired):
    """Compare tables with the (table, event, from, to) of the moves that were made.

    What both tables of the exchange have is one row, so a request of either fires it.
    """
    to_fire = {(table.name, *row) for table in tables for row in named(table)}
    twins = {"exchange": "durable", "durable": "exchange"}
    through_twin = {(twins[table], *row) for table, *row in fired if table in twins} & to_fire
    return Faults(to_fire - fired - through_twin, fired - to_fire)


def targets(table):
    """Give the state that each (event, state left) leads to, in the order the tests show them."""
    ordered = sorted(rows(table), key=lambda row: (row[0], row[1].name))
    return {(event, state): target for event, state, target in ordered}


def reachable(table):
    """Give the states that can be reached from the initial one."""
    reached, found = set(), {table.initial}
    while found:
        reached |= found
        found = {target for _, state, target in rows(table) if state in reached} - reached
    return reached
