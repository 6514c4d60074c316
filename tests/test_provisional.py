"""Walks the provisional table: a row is forgotten only where it is shown or gone."""

import pytest
from transitions import MachineError

from machines.driver import Driven, fire
from machines.provisional import FINAL, MACHINE, PROVISIONAL, State

EDGES = sorted(PROVISIONAL.edges, key=lambda edge: (edge[0], edge[1].name))
TARGETS = {
    (event, state): target
    for event, sources, target in PROVISIONAL.moves
    for state in (sources if isinstance(sources, list) else [sources])
}
CALLED = {
    ("terminal_delivered", State.PROVISIONAL): ["wake", "forget"],
    ("terminal_undelivered", State.PROVISIONAL): ["wake"],
    ("write_ended", State.WITHDRAWN): [],
    ("row_deleted", State.DELETING): ["forget"],
    ("delete_failed", State.DELETING): [],
    ("delete_retried", State.UNDELETED): [],
    ("crashed", State.WITHDRAWN): [],
    ("crashed", State.DELETING): [],
    ("server_closed", State.WITHDRAWN): ["forget"],
    ("server_closed", State.DELETING): ["forget"],
    ("server_closed", State.UNDELETED): ["forget"],
}


class Subject(Driven):
    """Stands in a state and notes what the machine calls."""

    def __init__(self, state):
        super().__init__(PROVISIONAL)
        self.state = state
        self.called = []

    def __getattr__(self, name):
        return lambda _: self.called.append(name)


@pytest.mark.parametrize(("event", "state"), EDGES)
def test_a_move_shows_the_row_or_forgets_it_only_where_it_may(event, state):
    subject = Subject(state)

    fire(MACHINE, subject, event)

    assert subject.state is TARGETS[event, state]
    assert subject.called == CALLED[event, state]


@pytest.mark.parametrize("state", State)
def test_a_row_has_a_way_out_unless_it_is_final(state):
    assert bool([event for event, left in EDGES if left is state]) is (state not in FINAL)


def test_every_state_can_be_reached():
    assert {PROVISIONAL.initial, *TARGETS.values()} == set(State) == set(PROVISIONAL.states)


@pytest.mark.parametrize("event", sorted({event for event, _ in EDGES}))
def test_a_final_row_moves_no_more(event):
    for state in FINAL:
        with pytest.raises(MachineError):
            fire(MACHINE, Subject(state), event)
