"""Walks both tables of the exchange: what no row may break, and each row fired once."""

from http import HTTPStatus
from string import Formatter

import pytest
from transitions import MachineError

from machines.driver import Driven, fire
from machines.exchange import DURABLE, DURABLE_FAILURES, EXCHANGE, FAILURES, FINAL, REFUSALS, TERMINALS, State
from tests.tables import reachable, rows, targets

TABLES = {table.name: table for table in (EXCHANGE, DURABLE)}
FAILURES_OF = {EXCHANGE.name: FAILURES, DURABLE.name: DURABLE_FAILURES}
ROWS = [(name, *row) for name, table in TABLES.items() for row in rows(table)]
TARGETS = {(name, *edge): target for name, table in TABLES.items() for edge, target in targets(table).items()}
EDGES = list(TARGETS)
BY_STATE = sorted(State, key=lambda state: state.name)
WORKING = [state for state in BY_STATE if state not in FINAL]
# BINDING never waits; a row that follows its terminal event keeps what the client has seen
NEVER_LEFT = {EXCHANGE.name: {State.BINDING, State.PERSISTING}, DURABLE.name: {State.BINDING}}
CALLBACKS = {
    name
    for table in TABLES.values()
    for hold in table.holds.values()
    for called in hold.values()
    for name in ([called] if isinstance(called, str) else called)
}
ANSWERS = [*REFUSALS.items(), *DURABLE_FAILURES.items()]
EACH = pytest.mark.parametrize("name", TABLES)


class Subject(Driven):
    """Stands in a state and notes what the machine calls."""

    def __init__(self, name, state):
        super().__init__(TABLES[name])
        self.state = state
        self.called = []
        for callback in CALLBACKS:
            setattr(self, callback, lambda _, callback=callback: self.called.append(callback))


def fired(name, event, state):
    subject = Subject(name, state)
    fire(subject.table.machine, subject, event)
    return subject


def edges(**wanted):
    """Choose edges by the state they leave or the state they lead to."""
    return [
        edge
        for edge in EDGES
        if wanted.get("left", edge[2]) is edge[2]
        and TARGETS[edge] in wanted.get("to", State)
        and wanted.get("name", edge[0]) == edge[0]
    ]


def events(name, left, to):
    return {event for _, event, _ in edges(name=name, left=left, to=[to])}


@EACH
def test_every_state_is_in_the_table_once(name):
    assert sorted(TABLES[name].states, key=lambda state: state.name) == BY_STATE


def test_no_two_rows_move_the_same_event_from_the_same_state():
    assert len(ROWS) == len(TARGETS)


@EACH
@pytest.mark.parametrize("state", State)
def test_a_state_has_a_way_out_unless_it_is_final(name, state):
    assert bool(edges(name=name, left=state)) is (state not in FINAL)


@EACH
def test_every_state_is_reached_from_the_initial_one(name):
    assert reachable(TABLES[name]) == set(State)


@EACH
@pytest.mark.parametrize("state", WORKING)
def test_a_client_may_leave_wherever_the_server_waits_for_its_sake(name, state):
    assert (("client_gone", state) in TABLES[name].edges) is (state not in NEVER_LEFT[name])


@EACH
@pytest.mark.parametrize("state", WORKING)
def test_every_working_state_may_crash(name, state):
    assert ("crashed", state) in TABLES[name].edges


def test_the_tables_differ_only_in_when_the_row_is_written():
    differing = {edge[1:] for edge in EDGES if TARGETS[edge] is not TARGETS.get((_other(edge[0]), *edge[1:]))}

    assert differing == {
        ("decode_finished", State.DISPATCHING),
        ("token_limit_reached", State.DISPATCHING),
        ("terminal_sent", State.EMITTING),
        *(("client_cancelled", state) for state in (State.HELD, State.DISPATCHING)),
        *(
            (event, State.PERSISTING)
            for event in (
                "row_written", "row_unwanted", "row_late", "row_lost",
                "crashed", "client_gone", "client_stalled", "server_stopping",
            )
        ),
    }  # fmt: skip


def _other(name):
    return DURABLE.name if name == EXCHANGE.name else EXCHANGE.name


def test_a_row_is_written_after_its_terminal_event_or_when_asked_for_before_it():
    assert events("exchange", State.EMITTING, State.PERSISTING) == {"terminal_sent"}
    assert events("durable", State.PERSISTING, State.EMITTING) == {"row_written", "row_unwanted", "row_late"}


def test_only_the_durable_table_lets_a_lost_row_fail_the_response():
    assert TARGETS["exchange", "row_lost", State.PERSISTING] is State.FAILED
    assert TARGETS["durable", "row_lost", State.PERSISTING] is State.FAILING


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


@EACH
@pytest.mark.parametrize(("event", "row"), REFUSALS.items())
def test_a_refusal_is_an_edge_from_each_of_its_states(name, event, row):
    assert {TARGETS[name, event, state] for state in row.states} == {State.REFUSED}


@pytest.mark.parametrize(
    ("name", "event"), [(name, event) for name, failures in FAILURES_OF.items() for event in failures]
)  # fmt: skip
def test_a_failure_is_an_edge_from_each_of_its_states(name, event):
    assert {TARGETS[name, event, state] for state in FAILURES_OF[name][event].states} == {State.FAILING}


@pytest.mark.parametrize("event", FAILURES)
def test_a_failure_says_the_same_in_both_tables(event):
    assert FAILURES[event][1:] == DURABLE_FAILURES[event][1:]


@pytest.mark.parametrize("event", TERMINALS)
def test_only_what_failed_ends_with_response_failed(event):
    has_failed = event in DURABLE_FAILURES and DURABLE_FAILURES[event].status == "failed"

    assert (TERMINALS[event] == "response.failed") is has_failed


def test_a_cancel_alone_is_a_failure_that_clients_are_not_to_try_again():
    assert {event for event, row in DURABLE_FAILURES.items() if row.status != "failed"} == {"client_cancelled"}
    assert TERMINALS["client_cancelled"] == "response.incomplete"


@pytest.mark.parametrize("state", [State.HELD, State.DISPATCHING])
def test_only_the_table_that_jobs_follow_can_be_cancelled(state):
    assert TARGETS["durable", "client_cancelled", state] is State.FAILING
    assert ("exchange", "client_cancelled", state) not in TARGETS


@EACH
def test_what_is_stored_is_asked_for_without_a_model(name):
    after = {State.RETRIEVING}
    while more := {TARGETS[edge] for edge in EDGES if edge[0] == name and edge[2] in after} - after:
        after |= more

    assert after == {State.RETRIEVING, State.TELLING, *FINAL}


@pytest.mark.parametrize(("name", "event", "state"), edges(to=[State.FAILING]))
def test_where_a_failure_is_sent_is_entered_only_by_an_event_that_has_one(name, event, state):
    assert event in FAILURES_OF[name]
    assert event in TERMINALS


@EACH
@pytest.mark.parametrize("event", sorted(set(TERMINALS) - set(DURABLE_FAILURES)))
def test_an_answer_that_ends_well_leads_to_its_terminal_or_to_its_row(name, event):
    first = {"exchange": State.EMITTING, "durable": State.PERSISTING}

    assert [edge for edge in EDGES if edge[:2] == (name, event)] == [(name, event, State.DISPATCHING)]
    assert TARGETS[name, event, State.DISPATCHING] is first[name]


def test_a_terminal_is_sent_only_for_an_answer_that_ended_well():
    ended_well = set(TERMINALS) - set(DURABLE_FAILURES)

    assert events("exchange", State.DISPATCHING, State.EMITTING) == ended_well
    assert events("durable", State.DISPATCHING, State.PERSISTING) == ended_well
    assert {state for _, _, state in edges(name="exchange", to=[State.EMITTING])} == {State.DISPATCHING}
    assert {state for _, _, state in edges(name="durable", to=[State.EMITTING])} == {State.PERSISTING}
    assert {state for _, _, state in edges(name="durable", to=[State.PERSISTING])} == {State.DISPATCHING}


@pytest.mark.parametrize(("name", "event", "state"), EDGES)
def test_a_move_leads_where_its_row_says(name, event, state):
    subject = fired(name, event, state)

    assert subject.state is TARGETS[name, event, state]
    assert subject.event == event
    assert [move[:3] for move in subject.trace] == [(event, state, subject.state)]


@EACH
@pytest.mark.parametrize("state", State)
def test_an_event_without_a_row_is_refused_and_the_state_stays(name, state):
    table = TABLES[name]
    illegal = {event for event, _ in table.edges if (event, state) not in table.edges}

    for event in illegal:
        subject = Subject(name, state)
        with pytest.raises(MachineError):
            fire(table.machine, subject, event)
        assert subject.state is state
        assert subject.called == []
        assert subject.trace == []


@EACH
def test_an_event_that_no_row_names_is_refused_and_the_state_stays(name):
    subject = Subject(name, State.QUEUED)

    with pytest.raises(MachineError):
        fire(subject.table.machine, subject, "to_DONE")

    assert subject.state is State.QUEUED


@pytest.mark.parametrize(("name", "event", "state"), edges(left=State.DISPATCHING))
def test_however_decoding_is_left_it_stops_and_frees_the_slot(name, event, state):
    assert fired(name, event, state).called[:2] == ["stop_decoding", "leave_slot"]


@pytest.mark.parametrize(("name", "event", "state"), edges(name="exchange", to=[State.EMITTING]))
def test_the_row_is_reserved_before_the_terminal_is_sent(name, event, state):
    assert fired(name, event, state).called.count("reserve_row") == 1


@pytest.mark.parametrize(("name", "event", "state"), edges(name="durable", to=[State.PERSISTING]))
def test_a_row_that_comes_first_is_reserved_and_held_back_before_it_is_written(name, event, state):
    assert fired(name, event, state).called[-2:] == ["reserve_row", "hold_row"]


@pytest.mark.parametrize(("name", "event", "state"), EDGES)
def test_a_row_is_shown_at_the_end_of_a_request_that_went_well(name, event, state):
    kept = fired(name, event, state).called.count("keep_row")

    assert kept == (name == "durable" and TARGETS[name, event, state] is State.DONE)


def test_where_there_is_a_row_only_the_terminal_event_that_left_leads_to_the_end_that_shows_it():
    with_row = {State.PERSISTING}
    while more := {TARGETS[edge] for edge in EDGES if edge[0] == "durable" and edge[2] in with_row} - with_row:
        with_row |= more

    shown = {event for _, event, state in edges(name="durable", to=[State.DONE]) if state in with_row}

    assert shown == {"terminal_sent"}


@pytest.mark.parametrize(("name", "event", "state"), edges(name="durable", to=[State.FAILING]))
def test_a_row_that_comes_first_is_let_go_before_a_failure_is_told(name, event, state):
    assert fired(name, event, state).called[-2:] == ["leave_slot", "release_row"]


@pytest.mark.parametrize(("name", "event", "state"), edges(to=FINAL))
def test_every_end_lets_go_of_the_place_the_row_and_the_model(name, event, state):
    assert fired(name, event, state).called[-3:] == ["leave_slot", "release_row", "release_lease"]


@pytest.mark.parametrize(("name", "event", "state"), [edge for edge in EDGES if edge[2] is not State.DISPATCHING])
def test_decoding_is_stopped_by_leaving_it_alone(name, event, state):
    assert "stop_decoding" not in fired(name, event, state).called
