"""Between a response and the row that keeps it."""

from typing import Any

import msgspec
from msgspec import Struct

from handlers.wire.response import Response
from storage.rows import ResponseRow

ECHOED = (
    "temperature", "top_p", "max_output_tokens", "tools", "reasoning", "metadata", "tool_choice", "truncation",
    "parallel_tool_calls", "text", "presence_penalty", "frequency_penalty", "top_logprobs", "max_tool_calls",
    "background", "service_tier", "safety_identifier", "prompt_cache_key", "completed_at",
)  # fmt: skip
SILENCE = {"type": "message", "role": "assistant", "content": ""}


class Origin(Struct, frozen=True, rename="camel"):
    """Which model object in which server process made a response."""

    model_instance_id: float
    server_boot_id: str | None = None
    is_generated: bool = True  # false where only the prompt was taken up, so that there is no turn of the assistant


class Reading(Struct, frozen=True):
    """How many tokens a stored response's prompt had."""

    input_tokens: int


def to_row(
    response: Response, items: list[dict[str, Any]], chain: list[ResponseRow], origin: Origin, expires_at: int
) -> ResponseRow:
    """Make the row of a response that has just ended."""
    config = {name: getattr(response, name) for name in ECHOED} | msgspec.to_builtins(origin)
    return ResponseRow(
        id=response.id,
        previous_response_id=response.previous_response_id,
        ancestors=tuple(row.id for row in chain),
        created_at=response.created_at,
        expires_at=expires_at,
        model=response.model,
        status=response.status,
        instructions=response.instructions,
        input_json=_to_json(items),
        output_json=_to_json(response.output),
        usage_json=_to_json(response.usage),
        config_json=_to_json(config),
    )


def to_turns(chain: list[ResponseRow]) -> list[list[dict[str, Any]]]:
    """Make the items of a stored chain, oldest first: what each request said, and what it was answered.

    A request without an answer still had a turn of the assistant, unless only its prompt was taken up.
    """
    turns: list[list[dict[str, Any]]] = []
    for row in chain:
        turns.append(msgspec.json.decode(row.input_json, type=list[dict[str, Any]]))
        turns.append(to_output(row) or ([SILENCE] if has_turn(row) else []))
    return turns


def to_history(chain: list[ResponseRow]) -> list[dict[str, Any]]:
    """Make the items of a stored chain, oldest first."""
    return [item for turn in to_turns(chain) for item in turn]


def to_session_cache(cached_tokens: int, chain: list[ResponseRow]) -> str:
    """Say in a word what was reused: all of the turn before, the start of something else, or nothing."""
    if not chain:
        return "prefix_hit" if cached_tokens else "fresh"
    before = msgspec.json.decode(chain[-1].usage_json or "null", type=Reading | None)
    if before is not None and cached_tokens >= before.input_tokens:
        return "hit"
    return "prefix_hit" if cached_tokens else "cold_replay"


def has_turn(row: ResponseRow) -> bool:
    """Tell whether the assistant had a turn, even one without words: not where only the prompt was taken up."""
    try:
        return msgspec.json.decode(row.config_json, type=dict[str, Any]).get("isGenerated", True) is not False
    except msgspec.MsgspecError:  # which is said where the model's identity is looked for
        return True


def to_output(row: ResponseRow) -> list[dict[str, Any]]:
    """Make the output items of a stored response."""
    return msgspec.json.decode(row.output_json, type=list[dict[str, Any]])


def _to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
