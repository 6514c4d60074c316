"""The one place where a response resource is built: in progress, terminal, or failed."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, json

from engine.pieces import Finish
from handlers.wire.items import OutputItem
from handlers.wire.request import CreateResponse, TextOptions
from handlers.wire.response import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    Status,
    Usage,
)

FUNCTION_KEYS = ("type", "name", "description", "parameters", "strict")
CUSTOM_KEYS = ("type", "name", "description", "format")
STATUS: dict[str, Status] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


class Head(Struct, frozen=True, kw_only=True):
    """What stays the same through a response's life; `created_at` is in Unix seconds."""

    id: str
    created_at: int
    instructions: str | None
    request: CreateResponse
    store: bool


class Ending(Struct, frozen=True, kw_only=True):
    """How a response stands now; `completed_at` is in Unix seconds."""

    status: Status = "in_progress"
    completed_at: int | None = None
    output: list[OutputItem] = []
    usage: Usage | None = None
    error: ResponseError | None = None


def to_response(head: Head, ending: Ending) -> Response:
    """Build all 31 keys; a setting the client left out is echoed as the value that took effect."""
    asked = head.request
    return Response(
        id=head.id,
        created_at=head.created_at,
        completed_at=ending.completed_at if ending.status == "completed" else None,
        status=ending.status,
        incomplete_details=IncompleteDetails("max_output_tokens") if ending.status == "incomplete" else None,
        error=ending.error,
        model=asked.model or "",
        previous_response_id=asked.previous_response_id or None,
        instructions=head.instructions,
        output=ending.output,
        usage=ending.usage,
        store=head.store,
        **to_echo(asked),
    )


def to_echo(asked: CreateResponse) -> dict[str, Any]:
    """Echo the settings that took effect: those asked for and served, else the specification's defaults."""
    return {
        "tools": list(_to_offered(asked.tools or [])),
        "tool_choice": _to_choice(asked.tool_choice),
        "truncation": "disabled",
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "text": {"format": _to_format(asked.text), "verbosity": (asked.text and asked.text.verbosity) or "medium"},
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "presence_penalty": asked.presence_penalty or 0.0,
        "frequency_penalty": asked.frequency_penalty or 0.0,
        "top_logprobs": asked.top_logprobs or 0,
        "reasoning": asked.reasoning and {"effort": asked.reasoning.effort, "summary": asked.reasoning.summary},
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": asked.max_tool_calls,
        "background": asked.background is True,
        "service_tier": "default",
        "metadata": _to_metadata(asked.metadata),
        "safety_identifier": asked.safety_identifier,
        "prompt_cache_key": asked.prompt_cache_key,
    }


def to_usage(finish: Finish) -> Usage:
    """Count what the model read and wrote."""
    return Usage(
        input_tokens=finish.prompt_tokens,
        input_tokens_details=InputTokensDetails(finish.cached_tokens),
        output_tokens=finish.completion_tokens,
        output_tokens_details=OutputTokensDetails(finish.reasoning_tokens),
        total_tokens=finish.prompt_tokens + finish.completion_tokens,
    )


def _to_format(text: TextOptions | None) -> dict[str, Any]:
    form = text.format if text else None
    if form is None or form.type != "json_schema":
        return {"type": form.type if form else "text"}
    named = {"type": form.type, "name": form.name, "description": form.description, "schema": form.schema}
    return {**named, "strict": form.strict is True}


def _to_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any]:
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return "none" if choice.get("mode") == "none" else {"mode": "auto", **choice}
    return choice or "auto"


def _to_offered(tools: list[dict[str, Any]], *, is_inside: bool = False) -> Iterator[dict[str, Any]]:
    """Echo the tools that the model was offered, and of each what was heeded; others are skipped."""
    for tool in tools:
        match tool.get("type"):
            case "function":
                yield {key: tool.get(key) for key in FUNCTION_KEYS}
            case "custom":
                yield {key: tool[key] for key in CUSTOM_KEYS if tool.get(key) is not None}
            case "namespace" if not is_inside:
                inside = list(_to_offered(tool.get("tools", []), is_inside=True))
                about = tool.get("description") or ""
                yield {"type": "namespace", "name": tool["name"], "description": about, "tools": inside}


def _to_metadata(given: Any) -> dict[str, str]:
    """Echo metadata in the API's form: a value is a string, so what is none is told as JSON, and null as absent."""
    pairs = given.items() if isinstance(given, dict) else ()
    return {
        name: value if isinstance(value, str) else json.encode(value).decode()
        for name, value in pairs
        if value is not None
    }
