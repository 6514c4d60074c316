"""Holds every reply to the Open Responses document and to the official client's own types.

`openresponses.json` is the specification's OpenAPI document of 2026-04-24. Where it knows less than the protocol's
clients send and read, it is amended here, each time for the reason that stands beside it.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema_rs import Validator, validator_for
from openai.types.responses import CompactedResponse, Response, ResponseStreamEvent
from pydantic import TypeAdapter

Schema = dict[str, Any]
FUNCTION = {"$ref": "#/components/schemas/FunctionTool"}
AMENDED: dict[str, Schema] = {
    # the document knows functions only; other tools are echoed as they came
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


def check_reply(status: int, content_type: str, text: str) -> None:
    """Check a whole or cut reply of the Responses API: a stream, a response or an error."""
    if content_type.startswith("text/event-stream"):
        for event in read_events(text):
            check_event(event)
    elif text and status < 400:
        check_response(json.loads(text))
    elif text:
        check_error(json.loads(text))


def check_event(event: dict[str, Any]) -> None:
    """Check one event of a stream."""
    if event["type"] not in UNDOCUMENTED:
        _schemas()[event["type"]].validate(event)
    known = {**event, "response": _to_known(event["response"])} if "response" in event else event
    _client_type(ResponseStreamEvent).validate_python(known, strict=True)


def check_response(response: dict[str, Any]) -> None:
    """Check one response."""
    _validator("ResponseResource").validate(response)
    _client_type(Response).validate_python(_to_known(response), strict=True)


def check_error(body: dict[str, Any]) -> None:
    """Check the body of a refusal."""
    assert list(body) == ["error"]
    _validator("ErrorPayload").validate(body["error"])


def check_compaction(body: dict[str, Any]) -> None:
    """Check what POST /v1/responses/compact answered; the official client's type knows no user's message in it."""
    _validator("CompactResource").validate(body)
    CompactedResponse.model_construct(**body)


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


def _to_known(response: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is echoed as it came and that the client's types cannot have."""
    metadata = {name: value for name, value in response["metadata"].items() if isinstance(value, str)}
    tools = [tool for tool in response["tools"] if tool["type"] == "function"]
    return {**response, "metadata": metadata, "tools": tools}
