"""How a request may be refused, before its first frame, or fail, after it: a row is edge, status, code and sentence."""

from http import HTTPStatus

from machines.exchange_states import UNSEEN, WAITING, State
from machines.table import Failure, Refusal

IRE = "invalid_request_error"
MISSING = "missing_required_parameter"

# fmt: off
REFUSALS = {
    "token_absent":       Refusal((State.ROUTING,), HTTPStatus(401), "authentication_error", "invalid_api_key", None,
                                  "Send a token of this server as 'Authorization: Bearer TOKEN' or as 'x-api-key: "
                                  "TOKEN'."),
    "token_wrong":        Refusal((State.ROUTING,), HTTPStatus(401), "authentication_error", "invalid_api_key", None,
                                  "The token is none of this server's."),
    "host_foreign":       Refusal((State.ROUTING,), HTTPStatus(403), "permission_error", "host_foreign", None,
                                  "A server without tokens answers only at a loopback name such as localhost, not at "
                                  "{host!r}."),
    "origin_foreign":     Refusal((State.ROUTING,), HTTPStatus(403), "permission_error", "origin_foreign", None,
                                  "A server without tokens answers no page of {origin!r}, unless INTERLOCK_CORS names "
                                  "that origin."),
    "route_unknown":      Refusal((State.ROUTING,), HTTPStatus(404), "not_found_error", None, None,
                                  "There is no {method} {path}; the README lists the routes."),
    "method_not_allowed": Refusal((State.ROUTING,), HTTPStatus(405), IRE, None, None,
                                  "Method not allowed: {path} takes {allowed}."),
    "trace_unknown":      Refusal((State.ROUTING,), HTTPStatus(404), "not_found_error", None, None,
                                  "Exchange {known_as!r} left no trace here, or none that is still kept: {kept}."),
    "query_invalid":      Refusal((State.ROUTING,), HTTPStatus(400), IRE, "invalid_value", "{param}",
                                  "Invalid value for `{param}`: {reason}."),
    "diagram_unknown":    Refusal((State.ROUTING,), HTTPStatus(404), "not_found_error", None, None,
                                  "There is no machine {machine!r}; the machines are: {machines}."),
    "frame_unknown":      Refusal((State.ROUTING,), HTTPStatus(400), IRE, "invalid_value", "type",
                                  "A frame must be a JSON object whose type is 'response.create'."),
    "socket_expired":     Refusal((State.ROUTING,), HTTPStatus(408), IRE, "websocket_connection_limit_reached", None,
                                  "This WebSocket has lasted as long as it may; open another one."),
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
    "input_too_long":     Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "array_above_max_length", "input",
                                  "`input` has {items} items and this server takes at most {limit}; shorten it, or "
                                  "continue with previous_response_id."),
    "retention_invalid":  Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "invalid_value",
                                  "metadata.retention_seconds",
                                  "metadata.retention_seconds must be an integer in [60, 7776000]"),
    "field_invalid":      Refusal((State.VALIDATING, State.PREPARING, State.RETRIEVING), HTTPStatus(400), IRE,
                                  "invalid_value", "{param}",
                                  "Invalid value for `{param}`: {reason}."),
    "field_unsupported":  Refusal((State.VALIDATING,), HTTPStatus(400), IRE, "unsupported_parameter", "{param}",
                                  "`{param}` is not supported: {reason}."),
    "model_unknown":      Refusal((State.BINDING,), HTTPStatus(404), "not_found_error", "model_not_found", "model",
                                  "Model {model!r} is not loaded; the models are: {models}."),
    "model_loading":      Refusal((State.BINDING,), HTTPStatus(503), "server_error", "model_loading", "model",
                                  "Model {model!r} is still loading; retry in {retry_after} s.", retry_after=2),
    "model_broken":       Refusal((State.BINDING, State.PREPARING), HTTPStatus(503), "server_error",
                                  "model_unavailable", "model",
                                  "Model {model!r} is not running; its operator can load it again, and the server's "
                                  "log says why.", retry_after=10),
    "store_absent":       Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "previous_response_id needs a response store, and this server keeps none."),
    "chain_unknown":      Refusal((State.RESOLVING,), HTTPStatus(404), "not_found_error",
                                  "previous_response_not_found", "previous_response_id",
                                  "Previous response {previous_response_id!r} was not found or expired."),
    "model_renamed":      Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "model",
                                  "The chain of {previous_response_id!r} was made by model {made_by!r}, not by "
                                  "{model!r}; ask {made_by!r}, or start a new chain."),
    "chain_unreadable":   Refusal((State.RESOLVING, State.AWAITING_WRITE, State.PREPARING), HTTPStatus(500),
                                  "server_error", None, "previous_response_id",
                                  "Failed to retrieve previous response: the store could not read it."),
    "chain_too_deep":     Refusal((State.RESOLVING,), HTTPStatus(400), IRE, "chain_too_deep", "previous_response_id",
                                  "The chain of {previous_response_id!r} has {depth} responses and this server follows "
                                  "at most {limit}; start a new chain."),
    "chain_cyclic":       Refusal((State.RESOLVING,), HTTPStatus(400), IRE, "chain_cyclic", "previous_response_id",
                                  "The chain of {previous_response_id!r} leads back to itself; start a new chain."),
    "write_wedged":       Refusal((State.RESOLVING,), HTTPStatus(503), "storage_timeout", None,
                                  "previous_response_id",
                                  "The write of {previous_response_id!r} is stuck; retry with the same id.",
                                  retry_after=5),
    "job_under_way":      Refusal((State.RESOLVING,), HTTPStatus(503), "server_error", "response_in_progress",
                                  "previous_response_id",
                                  "Response {previous_response_id!r} is still being made; retry when it has ended.",
                                  retry_after=5),
    "binding_changed":    Refusal((State.RESOLVING, State.QUEUED), HTTPStatus(400), IRE, None, "model",
                                  "Model {model!r} was replaced while the request waited; retry."),
    "identity_unreadable": Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "The stored configuration of {previous_response_id!r} cannot be read, so its model "
                                  "cannot be verified; start a new chain."),
    "identity_absent":    Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "previous_response_id",
                                  "Response {previous_response_id!r} does not say which model made it; start a new "
                                  "chain."),
    "instance_changed":   Refusal((State.RESOLVING,), HTTPStatus(400), IRE, None, "model",
                                  "The chain of {previous_response_id!r} belongs to a different instance of model "
                                  "{model!r} (it was hot-swapped); start a new chain."),
    "chain_expired":      Refusal((State.AWAITING_WRITE,), HTTPStatus(404), "not_found_error",
                                  "previous_response_not_found", "previous_response_id",
                                  "Previous response {previous_response_id!r} was not found."),
    "write_unsettled":    Refusal((State.AWAITING_WRITE,), HTTPStatus(503), "storage_timeout", None,
                                  "previous_response_id",
                                  "The write of {previous_response_id!r} did not settle within {waited_ms} ms; retry "
                                  "with the same id.", retry_after=1),
    "image_refused":      Refusal((State.PREPARING,), HTTPStatus(400), IRE, "unsupported_value", "{param}",
                                  "`{param}` is not text, and model {model!r} reads only text."),
    "reference_unknown":  Refusal((State.PREPARING,), HTTPStatus(404), "not_found_error", "item_not_found", "{param}",
                                  "Item {item_id!r} was not found among the stored outputs."),
    "choice_unknown":     Refusal((State.PREPARING,), HTTPStatus(400), IRE, "invalid_value", "tool_choice",
                                  "`tool_choice` names {tool!r}, which is not among the request's tools."),
    "echo_unknown":       Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The function_call with call_id {call_id!r} was not made by the response that is "
                                  "continued: unknown call_id."),
    "call_id_missing":    Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "tool message missing tool_call_id"),
    "output_unexpected":  Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "A function_call_output was sent, but the response that is continued has no "
                                  "outstanding tool call."),
    "outputs_scattered":  Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "function_call_output items must be a contiguous prefix of the input."),
    "calls_unresolved":   Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The response that is continued has {count} unresolved tool call(s): {call_ids}; "
                                  "send a function_call_output for each first."),
    "output_duplicated":  Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The input has a duplicate call_id {call_id!r}."),
    "output_unknown":     Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The input has an unexpected call_id {call_id!r}; expected: {call_ids}."),
    "outputs_missing":    Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The input lacks a function_call_output for: {call_ids}."),
    "history_malformed":  Refusal((State.PREPARING,), HTTPStatus(400), IRE, None, "input",
                                  "The tool calls of the conversation do not fit together at message {index}: "
                                  "{reason}."),
    "template_refused":   Refusal((State.PREPARING,), HTTPStatus(400), IRE, "invalid_prompt", "input",
                                  "The chat template of model {model!r} does not accept this conversation: {reason}."),
    "prompt_too_long":    Refusal((State.PREPARING,), HTTPStatus(400), IRE, "context_length_exceeded", "input",
                                  "The prompt has {prompt_tokens} tokens and model {model!r} takes at most {limit}; "
                                  "shorten the input or start a new chain."),
    "schema_invalid":     Refusal((State.PREPARING,), HTTPStatus(400), IRE, "invalid_json_schema", "{param}",
                                  "An answer cannot be held to the JSON schema of `{param}`: {reason}."),
    "definition_invalid": Refusal((State.PREPARING,), HTTPStatus(400), IRE, "invalid_grammar", "{param}",
                                  "A call cannot be held to the grammar of `{param}`: {reason}."),
    "queue_full":         Refusal((State.QUEUED,), HTTPStatus(429), "rate_limit_error", "queue_full", None,
                                  "{waiting} requests are waiting for model {model!r} (limit {limit}); try again in "
                                  "{retry_after}s.", retry_after=1),
    "job_unstored":       Refusal((State.QUEUED,), HTTPStatus(503), "server_error", "storage_error", "background",
                                  "The background response could not be stored; retry in {retry_after} s.",
                                  retry_after=5),
    "response_unknown":   Refusal((State.RETRIEVING,), HTTPStatus(404), "not_found_error", "response_not_found",
                                  "response_id", "Response {response_id!r} was not found or expired."),
    "response_unsettled": Refusal((State.RETRIEVING,), HTTPStatus(503), "storage_timeout", None, "response_id",
                                  "The write of response {response_id!r} has not settled; retry with the same id.",
                                  retry_after=1),
    "response_unreadable": Refusal((State.RETRIEVING,), HTTPStatus(500), "server_error", None, "response_id",
                                  "Failed to retrieve response {response_id!r}: the store could not read it."),
    "response_undeleted": Refusal((State.RETRIEVING,), HTTPStatus(503), "server_error", "storage_error",
                                  "response_id", "Response {response_id!r} could not be deleted; retry.",
                                  retry_after=1),
    "not_background":     Refusal((State.RETRIEVING,), HTTPStatus(400), IRE, None, "response_id",
                                  "Response {response_id!r} was not made with `background`, so it {cannot}."),
    "server_stopping":    Refusal(WAITING, HTTPStatus(503), "server_error", "server_stopping", None,
                                  "The server is stopping; retry in {retry_after} s.", retry_after=5),
    "crashed":            Refusal(UNSEEN, HTTPStatus(500), "server_error", "server_error", None,
                                  "The server failed on this request; its log names exchange {exchange}."),
}

STRANGERS = frozenset({"token_absent", "token_wrong", "host_foreign", "origin_foreign"})  # who may not ask at all

FAILURES = {
    "decode_failed":      Failure((State.DISPATCHING,), "server_error",
                                  "The model failed while decoding; the server's log names exchange {exchange}."),
    "stream_exhausted":   Failure((State.DISPATCHING,), "server_error",
                                  "The model stopped without saying why; the server's log names exchange {exchange}."),
    "finish_error":       Failure((State.DISPATCHING,), "server_error",
                                  "The model ended its answer with an error; the server's log names exchange "
                                  "{exchange}."),
    "binding_changed":    Failure((State.HELD,), "server_error",
                                  "Model {model!r} was replaced while the request waited; retry."),
    "server_stopping":    Failure((State.HELD, State.DISPATCHING), "server_error", "The server is stopping; retry."),
    "crashed":            Failure((State.HELD, State.DISPATCHING, State.EMITTING), "server_error",
                                  "The server failed on this request; its log names exchange {exchange}."),
}

# while the row is written before the terminal event, a response may fail too
DURABLE_FAILURES = {
    **FAILURES,
    **{event: FAILURES[event]._replace(states=(*FAILURES[event].states, State.PERSISTING))
       for event in ("server_stopping", "crashed")},
    "row_lost":           Failure((State.PERSISTING,), "server_error",
                                  "The response could not be stored; retry, or set `store` to false."),
    "client_cancelled":   Failure((State.HELD, State.DISPATCHING), "cancelled", "The response was cancelled.",
                                  status="cancelled"),
}
# fmt: on
