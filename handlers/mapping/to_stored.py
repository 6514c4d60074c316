"""From a stored row back to the resource that the client was sent, and to the list of its input items."""

from typing import Any

import msgspec

from handlers.mapping.references import to_input_id
from handlers.mapping.to_messages import ROLES
from handlers.mapping.to_response import to_echo
from handlers.mapping.to_row import to_output
from handlers.mapping.to_struct import FieldError, shown
from handlers.wire.request import CreateResponse
from handlers.wire.response import Response
from storage.rows import ResponseRow

INCOMPLETE = {"reason": "max_output_tokens"}
TEXT_PART = {"assistant": "output_text"}
AFTER = "after"
COMPLETED = {"status": "completed"}
# what the API's types ask of an item, or of a part, and a client may leave out
ITEM: dict[str, dict[str, Any]] = {
    "message": COMPLETED,
    "function_call": {"arguments": "{}", **COMPLETED},
    "function_call_output": COMPLETED,
    "custom_tool_call": {"input": "", **COMPLETED},
    "custom_tool_call_output": COMPLETED,
    "reasoning": {"summary": []},
}
PART: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto"},
}


def to_resource(row: ResponseRow) -> dict[str, Any]:
    """Build the resource of a stored response; what an older server did not store has its default."""
    config = msgspec.json.decode(row.config_json, type=dict[str, Any])
    echo = to_echo(CreateResponse())
    resource = {
        "id": row.id,
        "object": "response",
        "created_at": row.created_at,
        "completed_at": config.get("completed_at", row.created_at if row.status == "completed" else None),
        "status": row.status,
        "incomplete_details": INCOMPLETE if row.status == "incomplete" else None,
        "error": None,
        "model": row.model,
        "previous_response_id": row.previous_response_id,
        "instructions": row.instructions,
        "output": to_output(row),
        "usage": msgspec.json.decode(row.usage_json),
        "store": True,
        **{name: config.get(name, default) for name, default in echo.items()},
    }
    return {name: resource[name] for name in Response.__struct_fields__}


def to_input_items(response_id: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete a response's own input items, oldest first: each has an id, whether its client gave it one or not."""
    return [_complete(response_id, index, item) for index, item in enumerate(items)]


def to_page(items: list[dict[str, Any]], after: str | None, limit: int, *, is_descending: bool) -> dict[str, Any]:
    """Make one page of a list. Raises FieldError if `after` is no item of it."""
    ordered = items[::-1] if is_descending else items
    ids = [item["id"] for item in ordered]
    if after is not None and after not in ids:
        raise FieldError(AFTER, f"no item of the list has the id {shown(after)}")
    start = ids.index(after) + 1 if after is not None else 0
    page = ordered[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(ordered),
    }


def _complete(response_id: str, index: int, item: dict[str, Any]) -> dict[str, Any]:
    whole = {**ITEM.get(item["type"], {}), **_without_nulls(item)}
    if not isinstance(whole.get("id"), str):
        whole["id"] = to_input_id(str(item["type"]), response_id, index)
    if item["type"] == "message":
        whole["content"] = _to_content(whole)
    return {key: _to_parts(value) if key in {"content", "output"} else value for key, value in whole.items()}


def _to_content(message: dict[str, Any]) -> Any:
    content, role = message.get("content"), message.get("role")
    if not isinstance(content, str):
        return content if content is not None else []
    return [{"type": TEXT_PART.get(ROLES.get(str(role), "user"), "input_text"), "text": content}]


def _to_parts(parts: Any) -> Any:
    return [_to_part(part) for part in parts] if isinstance(parts, list) else parts


def _to_part(part: Any) -> Any:
    return {**PART.get(str(part.get("type")), {}), **_without_nulls(part)} if isinstance(part, dict) else part


def _without_nulls(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}
