"""The states of one request, and those that events share."""

from machines.table import States


class State(States):
    """Where a request stands."""

    ROUTING = "matching the route"
    VALIDATING = "checking the body"
    BINDING = "finding the model"
    RESOLVING = "resolving the chain"
    AWAITING_WRITE = "waiting for a write in flight"
    PREPARING = "making the prompt"
    QUEUED = "waiting for the model"
    HELD = "waiting, stream open"
    DISPATCHING = "decoding"
    EMITTING = "sending the terminal event"
    FAILING = "sending the failure"
    PERSISTING = "writing the row"
    RETRIEVING = "looking up a stored response"
    TELLING = "telling a job's events"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    ABANDONED = "abandoned"


FINAL = frozenset({State.DONE, State.REFUSED, State.FAILED, State.ABANDONED})
UNSEEN = (State.ROUTING, State.VALIDATING, State.BINDING, State.RESOLVING, State.AWAITING_WRITE, State.PREPARING,
          State.QUEUED, State.RETRIEVING)  # fmt: skip
DURABLE_ORDER = (*UNSEEN, State.HELD, State.DISPATCHING, State.PERSISTING, State.EMITTING, State.FAILING,
                 State.TELLING, State.DONE, State.REFUSED, State.FAILED, State.ABANDONED)  # fmt: skip
# BINDING never waits; after the terminal event left, a client that leaves changes nothing
LEAVABLE = tuple(state for state in State if state not in {*FINAL, State.BINDING, State.PERSISTING})
WAITING = (State.VALIDATING, State.RESOLVING, State.AWAITING_WRITE, State.PREPARING, State.QUEUED, State.RETRIEVING)
