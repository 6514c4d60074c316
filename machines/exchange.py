"""One request, from its route to its row.

A refusal happens before the first frame and is a plain HTTP error; a failure happens after it and is `response.failed`.
The prompt is made before the queue, so a bad request never waits for the model. The terminal event goes out before the
row is written; the row's id is reserved first, so a client that continues at once waits for the write, never for a 404.
A response whose client left before its terminal is neither kept nor continued.
"""

from enum import Enum
from http import HTTPStatus

from machines.table import Failure, Refusal, Table, to_machine


class State(Enum):
    """Where a request stands."""

    ROUTING = "matching the route"
    VALIDATING = "checking the body"
    BINDING = "finding the model"
    RESOLVING = "resolving the chain"
    AWAITING_WRITE = "waiting for a write in flight"
    PREPARING = "making the prompt"
    QUEUED = "waiting for the model"
    DISPATCHING = "decoding"
    EMITTING = "sending the terminal event"
    FAILING = "sending the failure"
    PERSISTING = "writing the row"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    ABANDONED = "abandoned"


FINAL = frozenset({State.DONE, State.REFUSED, State.FAILED, State.ABANDONED})
UNSEEN = (State.ROUTING, State.VALIDATING, State.BINDING, State.RESOLVING, State.AWAITING_WRITE, State.PREPARING,
          State.QUEUED)  # fmt: skip
# BINDING never waits; after the terminal event left, a client that leaves changes nothing
LEAVABLE = tuple(state for state in State if state not in {*FINAL, State.BINDING, State.PERSISTING})
WAITING = (State.VALIDATING, State.BINDING, State.RESOLVING, State.AWAITING_WRITE, State.PREPARING, State.QUEUED)

IRE = "invalid_request_error"
MISSING = "missing_required_parameter"

# fmt: off
MOVES = [
    # event                 from                    to
    ["route_found",         State.ROUTING,          State.VALIDATING],
    ["body_accepted",       State.VALIDATING,       State.BINDING],
    ["model_bound",         State.BINDING,          State.RESOLVING],
    ["chain_absent",        State.RESOLVING,        State.PREPARING],
    ["chain_resolved",      State.RESOLVING,        State.PREPARING],
    ["write_pending",       State.RESOLVING,        State.AWAITING_WRITE],
    ["write_settled",       State.AWAITING_WRITE,   State.RESOLVING],
    ["prompt_made",         State.PREPARING,        State.QUEUED],
    ["slot_granted",        State.QUEUED,           State.DISPATCHING],
    ["decode_finished",     State.DISPATCHING,      State.EMITTING],
    ["token_limit_reached", State.DISPATCHING,      State.EMITTING],
    ["terminal_sent",       State.EMITTING,         State.PERSISTING],
    ["row_written",         State.PERSISTING,       State.DONE],
    ["row_unwanted",        State.PERSISTING,       State.DONE],
    ["row_lost",            State.PERSISTING,       State.FAILED],
    ["failure_sent",        State.FAILING,          State.FAILED],
    ["client_gone",         list(LEAVABLE),         State.ABANDONED],
    ["crashed",             [State.FAILING, State.PERSISTING], State.FAILED],
]

REFUSALS = {
    "route_unknown":      Refusal((State.ROUTING,), HTTPStatus(404), "not_found_error", None, None,
                                  "There is no {method} {path}; this server has POST /v1/responses, GET /v1/models and "
                                  "GET /health."),
    "method_not_allowed": Refusal((State.ROUTING,), HTTPStatus(405), IRE, None, None,
                                  "Method not allowed: {path} takes {allowed}."),
    "request_malformed":  Refusal((State.ROUTING,), HTTPStatus(400), IRE, None, None,
                                  "The HTTP request is malformed: {reason}."),
    "body_too_large":     Refusal((State.VALIDATING,), HTTPStatus(413), IRE, None, None,
                                  "Request body too large: the limit is {limit} bytes."),
    "json_invalid":       Refusal((State.VALIDATING,), HTTPStatus(400), IRE, None, None,
                                  "Invalid JSON in request body"),
    "body_not_object":    Refusal((State.VALIDATING,), HTTPStatus(400), IRE, None, "body",
                                  "The request body must be a JSON object."),
    "model_missing":      Refusal((State.VALIDATING,), HTTPStatus(400), IRE, MISSING, "model",
                                  "Missing required field: model"),
    "input_missing":      Refusal((State.VALIDATING,), HTTPStatus(400), IRE, MISSING, "input",
                                  "Missing required field: input"),
    "input_mistyped":     Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "invalid_type", "input",
                                  "`input` must be a string or an array."),
    "input_empty":        Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "invalid_value", "input",
                                  "`input` must not be an empty array: send at least one item."),
    "retention_invalid":  Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "invalid_value",
                                  "metadata.retention_seconds",
                                  "metadata.retention_seconds must be an integer in [60, 7776000]"),
    "field_invalid":      Refusal((State.VALIDATING, State.PREPARING), HTTPStatus(400), IRE, "invalid_value", "{param}",
                                  "Invalid value for `{param}`: {reason}."),
    "field_unsupported":  Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "unsupported_parameter", "{param}",
                                  "`{param}` is not supported: {reason}."),
    "model_unknown":      Refusal((State.BINDING,), HTTPStatus(404), "not_found_error", "model_not_found", "model",
                                  "Model {model!r} is not loaded; the models are: {models}."),
    "model_loading":      Refusal((State.BINDING,), HTTPStatus(503), "server_error", "model_loading", "model",
                                  "Model {model!r} is still loading; retry in {retry_after} s.", retry_after=2),
    "model_broken":       Refusal((State.BINDING, State.PREPARING), HTTPStatus(503), "server_error",
                                  "model_unavailable", "model",
                                  "Model {model!r} is not running until the server is started again; its log says why.",
                                  retry_after=10),
    "store_absent":       Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "previous_response_id needs a response store, and this server keeps none."),
    "chain_unknown":      Refusal((State.RESOLVING,), HTTPStatus(404), "not_found_error",
                                  "previous_response_not_found", "previous_response_id",
                                  "Previous response {previous_response_id!r} was not found or expired."),
    "chain_unreadable":   Refusal((State.RESOLVING,), HTTPStatus(500), "server_error", None, "previous_response_id",
                                  "Failed to retrieve previous response: the store could not read it."),
    "identity_unreadable": Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "The stored configuration of {previous_response_id!r} cannot be read, so its model "
                                  "cannot be verified; start a new chain."),
    "identity_absent":    Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "Response {previous_response_id!r} does not say which model made it; start a new "
                                  "chain."),
    "instance_changed":   Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "model",
                                  "The chain of {previous_response_id!r} belongs to a different instance of model "
                                  "{model!r} (it was hot-swapped); start a new chain."),
    "write_unsettled":    Refusal((State.AWAITING_WRITE,), HTTPStatus(503), "storage_timeout", None,
                                  "previous_response_id",
                                  "The write of {previous_response_id!r} did not settle within {waited_ms} ms; retry "
                                  "with the same id.", retry_after=1),
    "template_refused":   Refusal((State.PREPARING,), HTTPStatus(400), IRE, "invalid_prompt", "input",
                                  "The chat template of model {model!r} does not accept this conversation: {reason}."),
    "prompt_too_long":    Refusal((State.PREPARING,), HTTPStatus(400), IRE, "context_length_exceeded", "input",
                                  "The prompt has {prompt_tokens} tokens and model {model!r} takes at most {limit}; "
                                  "shorten the input or start a new chain."),
    "queue_full":         Refusal((State.QUEUED,), HTTPStatus(429), "rate_limit_error", "queue_full", None,
                                  "{waiting} requests are waiting for model {model!r} (limit {limit}); try again in "
                                  "{retry_after}s.", retry_after=1),
    "server_stopping":    Refusal(WAITING, HTTPStatus(503), "server_error", "server_stopping", None,
                                  "The server is stopping; retry in {retry_after} s.", retry_after=5),
    "crashed":            Refusal(UNSEEN, HTTPStatus(500), "server_error", "server_error", None,
                                  "The server failed on this request; its log names exchange {exchange}."),
}

FAILURES = {
    "decode_failed":      Failure((State.DISPATCHING,), "server_error",
                                  "The model failed while decoding; the server's log names exchange {exchange}."),
    "server_stopping":    Failure((State.DISPATCHING,), "server_error", "The server is stopping; retry."),
    "crashed":            Failure((State.DISPATCHING, State.EMITTING), "server_error",
                                  "The server failed on this request; its log names exchange {exchange}."),
}

TERMINALS = {"decode_finished": "response.completed", "token_limit_reached": "response.incomplete",
             **dict.fromkeys(FAILURES, "response.failed")}

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    State.DISPATCHING: {"on_exit": ["stop_decoding", "leave_slot"]},
    State.EMITTING:    {"on_enter": "reserve_row"},
    State.DONE:        {"on_enter": "release_row"},
    State.FAILED:      {"on_enter": "release_row"},
    State.ABANDONED:   {"on_enter": "release_row"},
}
# fmt: on

MOVES += [[event, list(refusal.states), State.REFUSED] for event, refusal in REFUSALS.items()]
MOVES += [[event, list(failure.states), State.FAILING] for event, failure in FAILURES.items()]

EXCHANGE = Table("exchange", State, State.ROUTING, FINAL, MOVES, HOLDS)
MACHINE = to_machine(EXCHANGE)
