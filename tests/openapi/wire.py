"""Holds every reply to the Open Responses document and to the official client's own types.

`openresponses.json` is the specification's OpenAPI document of 2026-04-24. Where it knows less than the protocol's
clients send and read, it is amended here, each time for the reason that stands beside it.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema_rs import Validator, validator_for
from openai.types.responses import (
    CompactedResponse,
    InputTokenCountResponse,
    Response,
    ResponseItem,
    ResponseStreamEvent,
)
from pydantic import TypeAdapter

Schema = dict[str, Any]
FUNCTION = {"$ref": "#/components/schemas/FunctionTool"}
AMENDED: dict[str, Schema] = {
    # the document knows functions only; of the others the client's types know
    "Tool": {
        "anyOf": [
            FUNCTION,
            {"type": "object", "required": ["type"], "properties": {"type": {"not": {"const": "function"}}}},
        ]
    },
    "FunctionToolChoice": {
        "type": "object",
        "required": ["type", "name"],
        "properties": {"type": {"enum": ["function", "custom"]}},
    },
    "CustomCall": {
        "type": "object",
        "required": ["type", "id", "call_id", "name", "input", "status"],
        "properties": {"type": {"const": "custom_tool_call"}, "input": {"type": "string"}},
    },
    # its schema may only be null there, so that no answer could say what it was held to
    "JsonSchemaResponseFormat": {
        "type": "object",
        "required": ["type", "name", "description", "schema", "strict"],
        "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}},
    },
    # `minimal` stands among the descriptions and not in the list; `max` is the client's
    "ReasoningEffortEnum": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]},
}
# free-form tools are the client's, and not in the document
UNDOCUMENTED = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}
LISTED = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
}  # fmt: skip


def check_reply(status: int, content_type: str, text: str) -> None:
    """Check a whole or cut reply of the Responses API: a stream, an error, or what its `object` says it is."""
    if content_type.startswith("text/event-stream"):
        for event in read_events(text):
            check_event(event)
    elif text and status >= 400:
        check_error(json.loads(text))
    elif text:
        body = json.loads(text)
        CHECKS[body["object"]](body)


def check_event(event: dict[str, Any]) -> None:
    """Check one event of a stream."""
    if event["type"] not in UNDOCUMENTED:
        _schemas()[event["type"]].validate(event)
    _client_type(ResponseStreamEvent).validate_python(event, strict=True)


def check_response(response: dict[str, Any]) -> None:
    """Check one response."""
    _validator("ResponseResource").validate(response)
    _client_type(Response).validate_python(response, strict=True)


def check_error(body: dict[str, Any]) -> None:
    """Check the body of a refusal."""
    assert list(body) == ["error"]
    _validator("ErrorPayload").validate(body["error"])


def check_compaction(body: dict[str, Any]) -> None:
    """Check what POST /v1/responses/compact answered; the official client's type knows no user's message in it."""
    _validator("CompactResource").validate(body)
    CompactedResponse.model_construct(**body)


def check_items(body: dict[str, Any]) -> None:
    """Check a page of a response's input items; items of types that nobody knows are listed as they came."""
    assert (body["object"], type(body["has_more"])) == ("list", bool)
    for item in body["data"]:
        if item["type"] in LISTED:
            _client_type(ResponseItem).validate_python(item, strict=True)


def check_count(body: dict[str, Any]) -> None:
    """Check what POST /v1/responses/input_tokens answered."""
    _client_type(InputTokenCountResponse).validate_python(body, strict=True)


def check_deletion(body: dict[str, Any]) -> None:
    """Check what DELETE answered; neither the document nor the client knows more of it than this."""
    assert body == {"id": body["id"], "object": "response.deleted", "deleted": True}


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "response": check_response,
    "response.compaction": check_compaction,
    "response.input_tokens": check_count,
    "response.deleted": check_deletion,
    "list": check_items,
}


def check_socket_error(event: dict[str, Any]) -> None:
    """Check an error frame of a WebSocket."""
    _validator("WebSocketErrorEvent").validate(event)


def read_events(text: str) -> Iterator[dict[str, Any]]:
    """Give the events of a stream's whole frames; one that was cut off counts for nothing."""
    for frame in text.split("\n\n")[:-1]:
        data = frame.partition("data: ")[2]
        if data != "[DONE]":
            yield json.loads(data)


@cache
def _document() -> Schema:
    document = json.loads(Path(__file__).with_name("openresponses.json").read_text())
    schemas = {**document["components"]["schemas"], **AMENDED}
    items = [*schemas["ItemField"]["oneOf"], {"$ref": "#/components/schemas/CustomCall"}]
    return {**schemas, "ItemField": {"oneOf": items}}


@cache
def _validator(name: str) -> Validator:
    return validator_for({"$ref": f"#/components/schemas/{name}", "components": {"schemas": _document()}})


@cache
def _schemas() -> dict[str, Validator]:
    """Give the validator of each type of event."""
    events = {name: schema for name, schema in _document().items() if name.endswith("StreamingEvent")}
    return {schema["properties"]["type"]["enum"][0]: _validator(name) for name, schema in events.items()}


@cache
def _client_type(given: Any) -> TypeAdapter[Any]:
    return TypeAdapter(given)
