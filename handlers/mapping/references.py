"""Items a client names instead of sending: `item_reference` to an output item of a stored response.

An item's id carries its response's: `rs_` + the response's hexadecimal digits + two for its place.
"""

from typing import Any

from handlers.mapping.to_struct import FieldError, join
from handlers.mapping.tool_gate import Fault

PLACE = 2  # digits
PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco",
    "custom_tool_call": "ctc", "custom_tool_call_output": "ctco",
}  # fmt: skip


def to_item_id(prefix: str, response_id: str, index: int) -> str:
    """Make the id of a response's output item."""
    return f"{prefix}_{response_id.removeprefix('resp_')}{index:0{PLACE}x}"


def to_input_id(kind: str, response_id: str, index: int) -> str:
    """Make the id of an input item whose client gave it none."""
    return f"{PREFIXES.get(kind, 'item')}_{response_id.removeprefix('resp_')}i{index:0{PLACE}x}"


def to_references(items: list[dict[str, Any]]) -> list[str]:
    """List the responses whose items are referred to, each once."""
    ids = [_named(item, index) for index, item in enumerate(items) if item["type"] == "item_reference"]
    return list(dict.fromkeys(f"resp_{item_id.partition('_')[2][:-PLACE]}" for item_id in ids))


def to_resolved(items: list[dict[str, Any]], stored: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Fault | None]:
    """Put the stored items in the place of their references."""
    by_id = {item["id"]: item for item in stored if isinstance(item.get("id"), str)}
    resolved = []
    for index, item in enumerate(items):
        if item["type"] != "item_reference":
            resolved.append(item)
        elif item["id"] in by_id:
            resolved.append(by_id[item["id"]])
        else:
            return items, ("reference_unknown", {"param": join("input", index, "id"), "item_id": item["id"]})
    return resolved, None


def _named(item: dict[str, Any], index: int) -> str:
    item_id = item.get("id")
    if not isinstance(item_id, str):
        raise FieldError(join("input", index, "id"), "expected `str`")
    return item_id
