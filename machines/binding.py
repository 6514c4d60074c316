"""One model object: what its names, leases and retains let it be.

A name binds the object, a lease is a request that uses it, a retain is a write that must land under its instance id.
An engine that died is loaded again, under the same id. The model leaves memory when none of the three is left, not
before; named again while it drains, it simply stays. A write given up as wedged keeps only the id: the object is then
retired, and the same object named again has that id.
"""

from enum import Enum
from http import HTTPStatus

from machines.table import Refusal, States, Table


class State(States):
    """Where a model object stands."""

    LOADING = "loading"
    READY = "ready"
    BROKEN = "broken"
    DRAINING = "draining"
    RETIRED = "retired"
    GONE = "gone"


# fmt: off
MOVES = [
    # event                 from                                            to
    ["model_loaded",        State.LOADING,                                  State.READY],
    ["load_failed",         State.LOADING,                                  State.BROKEN],
    ["engine_died",         State.READY,                                    State.BROKEN],
    ["reload_started",      State.BROKEN,                                   State.LOADING],
    ["last_name_lost",      [State.LOADING, State.READY, State.BROKEN],     State.DRAINING],
    ["named_again",         State.DRAINING,                                 State.READY],
    ["last_holder_left",    State.DRAINING,                                 State.GONE],
    ["wedged_write_left",   State.DRAINING,                                 State.RETIRED],
    ["named_again",         State.RETIRED,                                  State.LOADING],
    ["last_write_settled",  State.RETIRED,                                  State.GONE],
    ["server_closed",       [State.LOADING, State.READY, State.BROKEN, State.DRAINING, State.RETIRED], State.GONE],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    State.RETIRED: {"on_enter": "close_engine"},
    State.GONE:    {"on_enter": ["close_engine", "forget"]},
}

IRE = "invalid_request_error"
MISSING = "missing_required_parameter"

# what an operator is refused; these rows leave no state
OPERATOR_REFUSALS = {
    "client_remote":    Refusal((), HTTPStatus(403), "permission_error", "operators_only", None,
                                "Without INTERLOCK_TOKEN, models are changed only from the server's own machine."),
    "client_forwarded": Refusal((), HTTPStatus(403), "permission_error", "operators_only", None,
                                "Without INTERLOCK_TOKEN, models are not changed through a proxy, and {header} says "
                                "there is one."),
    "origin_foreign":   Refusal((), HTTPStatus(403), "permission_error", "operators_only", None,
                                "Without INTERLOCK_TOKEN, models are not changed for a page of {origin!r}."),
    "name_invalid":     Refusal((), HTTPStatus(400), IRE, "invalid_value", "id",
                                "A model's id is 1 to {longest} printable characters, with no space or slash at "
                                "either end."),
    "body_too_large":   Refusal((), HTTPStatus(413), IRE, None, None,
                                "Request body too large: the limit is {limit} bytes."),
    "json_invalid":     Refusal((), HTTPStatus(400), IRE, None, None,
                                "Invalid JSON in request body"),
    "body_not_object":  Refusal((), HTTPStatus(400), IRE, None, "body",
                                "The request body must be a JSON object."),
    "source_missing":   Refusal((), HTTPStatus(400), IRE, MISSING, "source",
                                "Missing required field: source"),
    "source_mistyped":  Refusal((), HTTPStatus(400), IRE, "invalid_type", "source",
                                "`source` must be a string: a model folder, or a Hub name such as 'owner/model'."),
    "source_invalid":   Refusal((), HTTPStatus(400), IRE, "invalid_value", "source",
                                "Invalid value for `source`: {reason}"),
    "model_unknown":    Refusal((), HTTPStatus(404), "not_found_error", "model_not_found", "model",
                                "Model {model!r} is not loaded; the models are: {models}."),
    "load_under_way":   Refusal((), HTTPStatus(409), "conflict_error", "model_loading", "model",
                                "A load for model {model!r} is already under way, for {seconds} s now; wait for it, "
                                "or DELETE the model to give it up.", retry_after=2),
}
# fmt: on

BINDING = Table("binding", State, State.LOADING, frozenset({State.GONE}), MOVES, HOLDS)
MACHINE = BINDING.machine
