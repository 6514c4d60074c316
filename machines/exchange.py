"""One request, from its route to its row.

A refusal happens before the first frame and is a plain HTTP error; a failure happens after it and is `response.failed`.
The prompt is made before the queue, so a bad request never waits for the model. The terminal event goes out before the
row is written; the row's id is reserved first, so a client that continues at once waits for the write, never for a 404.
A response whose client left before its terminal is neither kept nor continued.

With INTERLOCK_DURABLE=1 a request follows the table `durable`: the row is written first, and a response that cannot be
kept fails. The row is held back until the terminal event has left, and deleted if it never does. So does every request
for a background response, whose terminal event has left once it is stored; no client that leaves ends such a request.
"""

from enum import Enum

from machines.endings import DURABLE_FAILURES, FAILURES, REFUSALS, STRANGERS
from machines.exchange_states import DURABLE_ORDER, FINAL, LEAVABLE, UNSEEN, State
from machines.table import Table

__all__ = ["DURABLE", "DURABLE_FAILURES", "EXCHANGE", "FAILURES", "FINAL", "LEAVABLE", "REFUSALS", "STRANGERS",
           "TERMINALS", "UNSEEN", "State"]  # fmt: skip

# fmt: off
SHARED = [
    # event                 from                    to
    ["route_found",         State.ROUTING,          State.VALIDATING],
    ["body_accepted",       State.VALIDATING,       State.BINDING],
    ["model_bound",         State.BINDING,          State.RESOLVING],
    ["chain_absent",        State.RESOLVING,        State.PREPARING],
    ["chain_resolved",      State.RESOLVING,        State.PREPARING],
    ["write_pending",       State.RESOLVING,        State.AWAITING_WRITE],
    ["write_settled",       State.AWAITING_WRITE,   State.RESOLVING],
    ["prompt_made",         State.PREPARING,        State.QUEUED],
    ["prompt_counted",      State.PREPARING,        State.DONE],
    ["heartbeat_due",       State.QUEUED,           State.HELD],
    ["job_accepted",        State.QUEUED,           State.HELD],
    ["slot_granted",        [State.QUEUED, State.HELD], State.DISPATCHING],
    ["failure_sent",        State.FAILING,          State.FAILED],
    ["stored_asked",        State.ROUTING,          State.RETRIEVING],
    ["stored_shown",        State.RETRIEVING,       State.DONE],
    ["stored_deleted",      State.RETRIEVING,       State.DONE],
    ["events_asked",        State.RETRIEVING,       State.TELLING],
    ["events_told",         State.TELLING,          State.DONE],
    ["client_stalled",      [State.HELD, State.DISPATCHING, State.EMITTING, State.FAILING, State.TELLING],
                                                    State.ABANDONED],
    ["client_gone",         list(LEAVABLE),         State.ABANDONED],
    ["crashed",             [State.FAILING, State.TELLING], State.FAILED],
    *([event, list(refusal.states), State.REFUSED] for event, refusal in REFUSALS.items()),
]

EMIT_FIRST = [
    ["decode_finished",     State.DISPATCHING,      State.EMITTING],
    ["token_limit_reached", State.DISPATCHING,      State.EMITTING],
    ["terminal_sent",       State.EMITTING,         State.PERSISTING],
    ["row_written",         State.PERSISTING,       State.DONE],
    ["row_unwanted",        State.PERSISTING,       State.DONE],
    ["row_late",            State.PERSISTING,       State.DONE],
    ["row_lost",            State.PERSISTING,       State.FAILED],
    ["crashed",             State.PERSISTING,       State.FAILED],
    *([event, list(failure.states), State.FAILING] for event, failure in FAILURES.items()),
]

PERSIST_FIRST = [
    ["decode_finished",     State.DISPATCHING,      State.PERSISTING],
    ["token_limit_reached", State.DISPATCHING,      State.PERSISTING],
    ["row_written",         State.PERSISTING,       State.EMITTING],
    ["row_unwanted",        State.PERSISTING,       State.EMITTING],
    ["row_late",            State.PERSISTING,       State.EMITTING],
    ["client_stalled",      State.PERSISTING,       State.ABANDONED],
    ["client_gone",         State.PERSISTING,       State.ABANDONED],
    ["terminal_sent",       State.EMITTING,         State.DONE],
    *([event, list(failure.states), State.FAILING] for event, failure in DURABLE_FAILURES.items()),
]

TERMINALS = {"decode_finished": "response.completed", "token_limit_reached": "response.incomplete",
             **dict.fromkeys(DURABLE_FAILURES, "response.failed"), "client_cancelled": "response.incomplete"}

LET_GO = ["leave_slot", "release_row", "release_lease"]
HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    State.DISPATCHING: {"on_exit": ["stop_decoding", "leave_slot"]},
    State.EMITTING:    {"on_enter": "reserve_row"},
    State.FAILING:     {"on_enter": "leave_slot"},
    State.PERSISTING:  {"on_enter": "keep_warm"},
    **{state: {"on_enter": LET_GO} for state in FINAL},
}
DURABLE_HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    **HOLDS,
    State.PERSISTING:  {"on_enter": ["reserve_row", "hold_row"]},
    State.EMITTING:    {},
    State.FAILING:     {"on_enter": ["leave_slot", "release_row"]},
    State.DONE:        {"on_enter": ["keep_warm", "keep_row", *LET_GO]},
}
# fmt: on

EXCHANGE = Table("exchange", State, State.ROUTING, FINAL, [*SHARED, *EMIT_FIRST], HOLDS)
DURABLE = Table("durable", DURABLE_ORDER, State.ROUTING, FINAL, [*SHARED, *PERSIST_FIRST], DURABLE_HOLDS)
