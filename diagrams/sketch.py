"""A table read for drawing: its edges, the spine they hang on, its sidings, and the moves that leave many states."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from machines.table import Failure, Refusal, Table

MANY = 3  # a move to an end that leaves this many states is drawn once


class Edge(NamedTuple):
    """One arrow: a row of the table, for one of the states it leaves."""

    source: Enum
    event: str
    target: Enum


class Shared(NamedTuple):
    """One event that leaves many states for the same end."""

    event: str
    sources: Sequence[Enum]
    target: Enum


class Sketch(NamedTuple):
    """What is drawn: a table, and what its rows say to the client. `outcomes` names the states that end badly."""

    table: Table
    summary: str
    outcomes: Mapping[Enum, str] = {}
    refusals: Mapping[str, Refusal] = {}
    failures: Mapping[str, Failure] = {}
    terminals: Mapping[str, str] = {}

    def outcome(self, state: Enum) -> str:
        ended = "done" if state in self.table.final else "progress"
        return self.outcomes.get(state, ended)

    def refusal(self, edge: Edge) -> Refusal | None:
        row = self.refusals.get(edge.event)
        return row if row and edge.source in row.states else None

    def failure(self, edge: Edge) -> Failure | None:
        row = self.failures.get(edge.event)
        return row if row and edge.source in row.states else None

    def label(self, edge: Edge) -> str:
        refusal = self.refusal(edge)
        return f"{refusal.status.value} {edge.event}" if refusal else edge.event


def to_edges(table: Table) -> list[Edge]:
    """List every arrow of a table, in the order of its rows. A row without a target stays where it is."""
    return [
        Edge(source, event, target or source)
        for event, sources, target in table.moves
        for source in ([sources] if isinstance(sources, Enum) else sources)
    ]


def to_spine(table: Table) -> list[Enum]:
    """Find the longest way to the first final state that only goes forward in the order the states are declared."""
    order = list(table.states)
    goal = next(state for state in order if state in table.final)
    ways = {goal: [goal]}
    for state in reversed(order[: order.index(goal)]):
        later = order[order.index(state) + 1 :]
        onward = [
            ways[e.target] for e in to_edges(table) if e.source is state and e.target in later and e.target in ways
        ]
        if onward:
            ways[state] = [state, *max(onward, key=len)]
    return ways.get(table.initial, [table.initial])


def to_sidings(table: Table, spine: Sequence[Enum]) -> dict[Enum, list[Enum]]:
    """Place each working state that is off the spine beside the first state of the spine that leads to it."""
    sidings: dict[Enum, list[Enum]] = {state: [] for state in spine}
    for state in table.states:
        if state not in table.final and state not in sidings:
            leads = [edge.source for edge in to_edges(table) if edge.target is state]
            host = next((lead for lead in spine if lead in leads), spine[0])
            sidings[host].append(state)
    return sidings


def to_shared(table: Table, spine: Sequence[Enum]) -> list[Shared]:
    """List the events that leave many states for one end which is not the spine's."""
    sources: dict[tuple[str, Enum], list[Enum]] = {}
    for source, event, target in to_edges(table):
        if target in table.final and target not in spine:
            sources.setdefault((event, target), []).append(source)
    return [Shared(event, left, target) for (event, target), left in sources.items() if len(left) >= MANY]


def to_exits(edges: Iterable[Edge]) -> dict[Enum, list[Edge]]:
    """Group edges by the state they lead to."""
    exits: dict[Enum, list[Edge]] = {}
    for edge in edges:
        exits.setdefault(edge.target, []).append(edge)
    return exits


def to_span(table: Table, states: Sequence[Enum]) -> str:
    """Say which working states these are: all but a few, a stretch as they are declared, or by name."""
    working = [state for state in table.states if state not in table.final]
    places = sorted(working.index(state) for state in states)
    others = [state.name for state in working if state not in states]
    if len(others) < MANY:
        return " but ".join(["any state", *([", ".join(others)] if others else [])])
    if len(places) > MANY and places == list(range(places[0], places[-1] + 1)):
        return f"any state from {working[places[0]].name} to {working[places[-1]].name}"
    return ", ".join(working[place].name for place in places)
