"""A table read for drawing: its edges, the spine they hang on, its sidings, and the moves that leave many states."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from machines.table import Failure, Refusal, Table

MANY = 4  # a move to an end that leaves this many states is drawn once


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

    @property
    def edges(self) -> list[Edge]:
        return [Edge(source, self.event, self.target) for source in self.sources]


class Sketch(NamedTuple):
    """What is drawn: a table, and what its rows say to the client.

    `outcomes` names the states that are delayed or end badly; the happy path goes through none of them. A refusal that
    leaves no state is drawn by itself.
    """

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
        return to_label(edge.event, refusal) if refusal else edge.event

    def code(self, edge: Edge) -> str:
        row = self.refusal(edge) or self.failure(edge)
        return (row.code or "") if row else ""

    @property
    def stateless(self) -> Mapping[str, Refusal]:
        return {event: row for event, row in self.refusals.items() if not row.states}


def to_label(event: str, refusal: Refusal) -> str:
    """Name a refusal as it is drawn."""
    return f"{refusal.status.value} {event}"


def to_edges(table: Table) -> list[Edge]:
    """List every arrow of a table, in the order of its rows."""
    return [Edge(source, event, target) for event, source, target in table.rows]


class Plan(NamedTuple):
    """Where everything goes: the happy path, the working states beside it, the ends off it, and how edges are drawn."""

    spine: Sequence[Enum]
    sidings: Mapping[Enum, Sequence[Enum]]
    ends: Sequence[Enum]
    shared: Sequence[Shared]
    edges: Sequence[Edge]  # those that are drawn where they leave


def to_plan(sketch: Sketch) -> Plan:
    """Lay out a sketch, for either kind of drawing."""
    table, edges = sketch.table, to_edges(sketch.table)
    spine = to_spine(sketch, edges)
    ends = [state for state in table.states if state in table.final and state not in spine]
    shared = to_shared(edges, ends)
    once = {edge for each in shared for edge in each.edges}
    return Plan(spine, to_sidings(table, edges, spine), ends, shared, [edge for edge in edges if edge not in once])


def to_spine(sketch: Sketch, edges: Sequence[Edge]) -> list[Enum]:
    """Find the happy path: the longest way to the first good end that goes forward as the states are declared."""
    table = sketch.table
    order = [state for state in table.states if sketch.outcome(state) in {"progress", "done"}]
    goal = next(state for state in order if state in table.final)
    ways = {goal: [goal]}
    for state in reversed(order[: order.index(goal)]):
        onward = [ways[e.target] for e in edges if e.source is state and e.target in ways and e.target is not state]
        if onward:
            ways[state] = [state, *max(onward, key=len)]
    return ways.get(table.initial, [table.initial])


def to_sidings(table: Table, edges: Sequence[Edge], spine: Sequence[Enum]) -> dict[Enum, list[Enum]]:
    """Place each working state that is off the spine beside the first state of the spine that leads to it.

    One that only other sidings lead to stands with the first of them.
    """
    hosts = {state: state for state in spine}
    for state in table.states:
        if state not in table.final and state not in spine:
            leads = {edge.source for edge in edges if edge.target is state}
            hosts[state] = next((host for lead, host in hosts.items() if lead in leads), spine[0])
    return {host: [state for state in hosts if hosts[state] is host and state is not host] for host in spine}


def to_shared(edges: Sequence[Edge], ends: Sequence[Enum]) -> list[Shared]:
    """List the events that leave many states for one of these ends."""
    sources: dict[tuple[str, Enum], list[Enum]] = {}
    for source, event, target in edges:
        if target in ends:
            sources.setdefault((event, target), []).append(source)
    return [Shared(event, left, target) for (event, target), left in sources.items() if len(left) >= MANY]


def to_exits(edges: Iterable[Edge]) -> dict[tuple[Enum, Enum], list[Edge]]:
    """Group edges by the states they lie between."""
    exits: dict[tuple[Enum, Enum], list[Edge]] = {}
    for edge in edges:
        exits.setdefault((edge.source, edge.target), []).append(edge)
    return exits
