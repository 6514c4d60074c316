"""Walks the exchange table: what no row may break, and each row fired once."""

from http import HTTPStatus
from string import Formatter

import pytest
from transitions import MachineError

from machines.driver import Driven, fire
from machines.exchange import EXCHANGE, FAILURES, FINAL, HOLDS, MACHINE, REFUSALS, TERMINALS, State
from tests.tables import reachable, rows, targets

TARGETS = targets(EXCHANGE)
EDGES = list(TARGETS)
NEVER_LEFT = {State.BINDING, State.PERSISTING}  # the one never waits, the other keeps what the client has seen
CALLBACKS = {
    name
    for hold in HOLDS.values()
    for called in hold.values()
    for name in ([called] if isinstance(called, str) else called)
}
ANSWERS = [*REFUSALS.items(), *FAILURES.items()]


class Subject(Driven):
    """Stands in a state and notes what the machine calls."""

    def __init__(self, state):
        super().__init__(EXCHANGE)
        self.state = state
        self.called = []
        for name in CALLBACKS:
            setattr(self, name, lambda _, name=name: self.called.append(name))


def fired(event, state):
    subject = Subject(state)
    fire(MACHINE, subject, event)
    return subject


def test_no_two_rows_move_the_same_event_from_the_same_state():
    edges = [(event, state) for event, state, _ in rows(EXCHANGE)]

    assert len(edges) == len(set(edges))


@pytest.mark.parametrize("state", State)
def test_a_state_has_a_way_out_unless_it_is_final(state):
    ways_out = [event for event, left in EXCHANGE.edges if left is state]

    assert bool(ways_out) is (state not in FINAL)


def test_every_state_is_reached_from_the_initial_one():
    assert reachable(EXCHANGE) == set(State)


@pytest.mark.parametrize("state", sorted(set(State) - FINAL, key=lambda state: state.name))
def test_a_client_may_leave_wherever_the_server_waits_for_its_sake(state):
    assert ("client_gone", state) in EXCHANGE.edges or state in NEVER_LEFT


@pytest.mark.parametrize("state", sorted(set(State) - FINAL, key=lambda state: state.name))
def test_every_working_state_may_crash(state):
    assert ("crashed", state) in EXCHANGE.edges


@pytest.mark.parametrize(("event", "row"), ANSWERS)
def test_a_message_is_made_of_facts_with_names(event, row):
    names = [name for _, name, _, _ in Formatter().parse(row.message) if name is not None]

    told = row.message.format(**dict.fromkeys(names, "fact"))

    assert all(name.isidentifier() for name in names), event
    assert "{" not in told


@pytest.mark.parametrize(("event", "row"), REFUSALS.items())
def test_a_param_is_a_field_or_the_fact_that_names_it(event, row):
    assert row.param is None or row.param == "{param}" or "{" not in row.param, event


@pytest.mark.parametrize(("event", "row"), REFUSALS.items())
def test_a_refusal_that_will_pass_says_when_to_retry_and_no_other_does(event, row):
    passes = row.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

    assert (row.retry_after is not None) is passes, event
    assert "{retry_after}" not in row.message or passes


@pytest.mark.parametrize(("event", "row"), REFUSALS.items())
def test_a_refusal_is_an_error_status(event, row):
    assert HTTPStatus.BAD_REQUEST <= row.status < 600, event


@pytest.mark.parametrize(("event", "row"), REFUSALS.items())
def test_a_refusal_is_an_edge_from_each_of_its_states(event, row):
    assert {TARGETS[event, state] for state in row.states} == {State.REFUSED}


@pytest.mark.parametrize(("event", "row"), FAILURES.items())
def test_a_failure_is_an_edge_from_each_of_its_states(event, row):
    assert {TARGETS[event, state] for state in row.states} == {State.FAILING}


@pytest.mark.parametrize("event", TERMINALS)
def test_an_event_with_a_terminal_leads_to_where_it_is_sent(event):
    assert {State.EMITTING, State.FAILING} & {TARGETS[edge] for edge in EDGES if edge[0] == event}


@pytest.mark.parametrize(("event", "state"), EDGES)
def test_where_a_terminal_is_sent_is_entered_only_by_an_event_that_has_one(event, state):
    sends = TARGETS[event, state] in (State.EMITTING, State.FAILING)

    assert not sends or event in TERMINALS


@pytest.mark.parametrize("event", TERMINALS)
def test_only_a_failure_ends_with_response_failed(event):
    failed = State.FAILING in {TARGETS[edge] for edge in EDGES if edge[0] == event}

    assert (TERMINALS[event] == "response.failed") is failed


@pytest.mark.parametrize(("event", "state"), EDGES)
def test_a_move_leads_where_its_row_says(event, state):
    subject = fired(event, state)

    assert subject.state is TARGETS[event, state]
    assert subject.event == event
    assert [move[:3] for move in subject.trace] == [(event, state, subject.state)]


@pytest.mark.parametrize("state", State)
def test_an_event_without_a_row_is_refused_and_the_state_stays(state):
    illegal = [event for event, _ in EDGES if (event, state) not in EXCHANGE.edges]

    for event in illegal:
        subject = Subject(state)
        with pytest.raises(MachineError):
            fire(MACHINE, subject, event)
        assert subject.state is state
        assert subject.called == []
        assert subject.trace == []


def test_an_event_that_no_row_names_is_refused_and_the_state_stays():
    subject = Subject(State.QUEUED)

    with pytest.raises(MachineError):
        fire(MACHINE, subject, "to_DONE")

    assert subject.state is State.QUEUED


@pytest.mark.parametrize("event", [event for event, state in EDGES if state is State.DISPATCHING])
def test_however_decoding_is_left_it_stops_and_frees_the_slot(event):
    assert fired(event, State.DISPATCHING).called[:2] == ["stop_decoding", "leave_slot"]


@pytest.mark.parametrize(("event", "state"), [edge for edge in EDGES if TARGETS[edge] is State.EMITTING])
def test_the_row_is_reserved_before_the_terminal_is_sent(event, state):
    assert fired(event, state).called.count("reserve_row") == 1


@pytest.mark.parametrize(("event", "state"), [edge for edge in EDGES if TARGETS[edge] in FINAL])
def test_every_end_lets_go_of_the_place_the_row_and_the_model(event, state):
    assert fired(event, state).called[-3:] == ["leave_slot", "release_row", "release_lease"]


@pytest.mark.parametrize(("event", "state"), [edge for edge in EDGES if edge[1] is not State.DISPATCHING])
def test_decoding_is_stopped_by_leaving_it_alone(event, state):
    assert "stop_decoding" not in fired(event, state).called
