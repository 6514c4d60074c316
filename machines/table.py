"""What a machine's table is made of: moves, holds and the rows that answer a client."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from typing import Any, NamedTuple

from transitions import Event, EventData, Machine, State, Transition


class States(Enum):
    """The states of a machine, hashed by identity: Enum's own hash is a call of Python's, and a request makes dozens.

    Where much is done, `_name_` gives the name; `name` is such a call too.
    """

    __hash__ = object.__hash__


class Refusal(NamedTuple):
    """A row that ends a request with an HTTP error: the edge, the status, the code and the sentence in one."""

    states: tuple[Enum, ...]
    status: HTTPStatus
    type: str
    code: str | None
    param: str | None
    message: str
    retry_after: int | None = None  # seconds


class Failure(NamedTuple):
    """A row that ends a response after its first frame, as `response.failed` unless its status is another."""

    states: tuple[Enum, ...]
    code: str
    message: str
    status: str = "failed"


@dataclass(frozen=True)
class Table:
    """One machine as data. `moves` are rows of (event, source or sources, target); `states` stand as they are drawn.

    `cancelled` and `crashed` name the events of a task cancelled from outside and of a step that broke.
    """

    name: str
    states: Iterable[Enum]
    initial: Enum
    final: frozenset[Enum]
    moves: Sequence[list[Any]]
    holds: Mapping[Enum, Mapping[str, str | list[str]]]
    cancelled: str = "client_gone"
    crashed: str = "crashed"

    @cached_property
    def rows(self) -> list[tuple[str, Enum, Enum]]:
        """Every (event, state it leaves, state it reaches), in the order of the moves."""
        return [
            (event, source, target)
            for event, sources, target in self.moves
            for source in ([sources] if isinstance(sources, Enum) else sources)
        ]

    @cached_property
    def edges(self) -> frozenset[tuple[str, Enum]]:
        """Every (event, state it leaves) pair: what the tests must fire and the diagram must show."""
        return frozenset((event, source) for event, source, _ in self.rows)

    @cached_property
    def machine(self) -> Machine:
        """The one shared machine; fire its events with `driver.fire`."""
        return to_machine(self)


class HoldsOnly(Event):
    """An event whose moves call back what states hold; asking for the library's other hooks takes ten times as long."""

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._ends: dict[str, tuple[State, State]] = {}

    def add_transition(self, transition: Transition) -> None:
        super().add_transition(transition)
        source, target = (self.machine.states[str(name)] for name in (transition.source, transition.dest))
        self._ends[transition.source] = source, target

    def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
        left, entered = self._ends[model.state._name_]
        happened = EventData(left, self, self.machine, model, args, kwargs)
        _call_back(left.on_exit, happened)
        model.state = entered.value
        _call_back(entered.on_enter, happened)
        return True


class TableMachine(Machine):
    """A machine that has been told all by its table."""

    event_cls = HoldsOnly


def to_machine(table: Table) -> Machine:
    """Build a machine; each table has its own as `machine`."""
    return TableMachine(
        model=None,
        states=[{"name": state, **table.holds.get(state, {})} for state in table.states],
        transitions=list(table.moves),
        initial=table.initial,
        auto_transitions=False,
        send_event=True,
    )


def _call_back(names: Sequence[Any], happened: EventData) -> None:
    for name in names:
        getattr(happened.model, name)(happened)
