"""Walks the write table: what each move takes and lets go of, and that every row ends."""

import pytest
from transitions import MachineError

from machines.driver import Driven, fire
from machines.write import FINAL, MACHINE, WRITE, State
from tests.tables import reachable, targets

TARGETS = targets(WRITE)
EDGES = list(TARGETS)
CALLED = {
    ("write_started", State.RESERVED): ["arm_breaker"],
    ("terminal_undelivered", State.RESERVED): ["forget", "wake"],
    ("soft_timeout_passed", State.IN_FLIGHT): ["let_go_if_unguarded"],
    ("hard_timeout_passed", State.IN_FLIGHT): ["mark", "let_go"],
    ("hard_timeout_passed", State.LATE): ["mark", "let_go"],
    ("marker_renewed", State.WEDGED): ["unmark", "mark", "let_go"],
    ("marker_expired", State.WEDGED): ["unmark", "forget"],
    ("row_committed", State.IN_FLIGHT): ["disarm_breaker", "forget", "wake", "let_go"],
    ("row_committed", State.LATE): ["disarm_breaker", "forget", "wake", "let_go"],
    ("row_committed", State.WEDGED): ["unmark", "disarm_breaker", "forget", "wake", "let_go"],
    ("row_committed", State.EXPIRED): ["disarm_breaker", "forget", "wake", "let_go"],
    ("write_failed", State.IN_FLIGHT): ["disarm_breaker", "keep", "wake", "let_go"],
    ("write_failed", State.LATE): ["disarm_breaker", "keep", "wake", "let_go"],
    ("write_failed", State.WEDGED): ["unmark", "disarm_breaker", "keep", "wake", "let_go"],
    ("write_failed", State.EXPIRED): ["forget", "let_go"],
    ("write_retried", State.FAILED): ["unkeep", "arm_breaker"],
    ("row_expired", State.FAILED): ["unkeep", "forget", "let_go"],
    ("row_given_up", State.FAILED): ["unkeep", "forget", "let_go"],
}


class Subject(Driven):
    """Stands in a state and notes what the machine calls."""

    def __init__(self, state):
        super().__init__(WRITE)
        self.state = state
        self.called = []

    def __getattr__(self, name):
        return lambda _: self.called.append(name)


@pytest.mark.parametrize(("event", "state"), EDGES)
def test_a_move_takes_and_lets_go_of_what_it_must(event, state):
    subject = Subject(state)

    fire(MACHINE, subject, event)

    assert subject.state is TARGETS[event, state]
    assert subject.called == CALLED[event, state]


@pytest.mark.parametrize("state", State)
def test_a_row_has_a_way_out_unless_it_is_final(state):
    ways_out = {event for event, left in EDGES if left is state}

    assert bool(ways_out) is (state not in FINAL)


def test_every_state_can_be_reached():
    assert reachable(WRITE) == set(State)


@pytest.mark.parametrize("event", sorted({event for event, _ in EDGES}))
def test_a_final_row_moves_no_more(event):
    for state in FINAL:
        subject = Subject(state)

        with pytest.raises(MachineError):
            fire(MACHINE, subject, event)

        assert subject.state is state
        assert subject.called == []


def test_only_a_reserved_row_is_released():
    assert [state for event, state in EDGES if event == "terminal_undelivered"] == [State.RESERVED]


def test_the_soft_timeout_never_touches_the_breaker_or_the_marker():
    assert CALLED["soft_timeout_passed", State.IN_FLIGHT] == ["let_go_if_unguarded"]
