"""VALIDATING: from bytes to a request that asks only for what is served."""

from collections.abc import Callable
from typing import Any

import msgspec

from handlers.exchange import Exchange
from handlers.mapping.compaction import to_compacting
from handlers.mapping.to_struct import FieldError, to_struct
from handlers.wire.depth import TOO_DEEP, is_too_deep
from handlers.wire.request import CreateResponse
from machines.exchange import DURABLE

FORMATS = ("text", "json_object", "json_schema")
RETENTION = range(60, 7776001)  # seconds


async def validate(exchange: Exchange) -> str:
    """Read the body and check every field of it."""
    limit = exchange.services.settings.max_body_bytes
    exchange.facts["limit"] = limit
    body = await exchange.incoming.body.read(limit) if exchange.incoming.body else b""
    if exchange.services.is_stopping:
        return "server_stopping"
    if body is None:
        return "body_too_large"
    if is_too_deep(body):
        exchange.facts.update(param="body", reason=TOO_DEEP)
        return "field_invalid"
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return "json_invalid"
    try:
        return _check(exchange, decoded)
    except FieldError as fault:
        exchange.facts.update(param=fault.param, reason=fault.reason)
        return "field_invalid"


def _check(exchange: Exchange, decoded: Any) -> str:
    if not isinstance(decoded, dict):
        return "body_not_object"
    is_optional = exchange.incoming.asked in {"count", "compact"}
    if event := _missing(decoded, is_optional=is_optional) or _excess(exchange, decoded.get("input")):
        return event
    request = ASKED[exchange.incoming.asked](to_struct(decoded, CreateResponse))
    if not _is_retention(request.metadata):
        return "retention_invalid"
    if unsupported := _unsupported(request, has_store=exchange.services.store is not None):
        exchange.facts.update(unsupported)
        return "field_unsupported"
    exchange.request = request
    if exchange.request.background:
        exchange.table = DURABLE
    return "body_accepted"


def to_counted(request: CreateResponse) -> CreateResponse:
    """Make a request of which only the prompt is wanted."""
    return msgspec.structs.replace(request, background=False)


def to_spoken(request: CreateResponse) -> CreateResponse:
    """Make a WebSocket's request, which is a stream and dies with its reader."""
    return msgspec.structs.replace(request, stream=True, background=False)


ASKED: dict[str, Callable[[CreateResponse], CreateResponse]] = {
    "create": lambda request: request,
    "count": to_counted,
    "compact": to_compacting,
    "talk": to_spoken,
}


def _missing(decoded: dict[str, Any], *, is_optional: bool) -> str | None:
    given = decoded.get("input")
    if not decoded.get("model"):
        return "model_missing"
    if given is None:
        return None if is_optional and decoded.get("previous_response_id") else "input_missing"
    if not isinstance(given, str | list):
        return "input_mistyped"
    return "input_empty" if given == [] else None


def _excess(exchange: Exchange, given: str | list[Any] | None) -> str | None:
    limit = exchange.services.settings.max_input_items
    if not isinstance(given, list) or len(given) <= limit:
        return None
    exchange.facts.update(items=len(given), limit=limit)
    return "input_too_long"


def _is_retention(metadata: Any) -> bool:
    seconds = metadata.get("retention_seconds") if isinstance(metadata, dict) else None
    return seconds is None or (type(seconds) is int and seconds in RETENTION)


def _unsupported(request: CreateResponse, *, has_store: bool) -> dict[str, str] | None:
    form = request.text.format.type if request.text and request.text.format else "text"
    is_unstored = request.background and (request.store is False or not has_store)
    reasons = {
        "background": is_unstored and "a background response must be stored, and this one is not to be",
        "conversation": request.conversation is not None and "use previous_response_id",
        "prompt": request.prompt is not None and "send the prompt's text as instructions or input",
        "text.format": form not in FORMATS and f"use one of {', '.join(FORMATS)}",
    }
    faults = ({"param": param, "reason": reason} for param, reason in reasons.items() if isinstance(reason, str))
    return next(faults, None)
