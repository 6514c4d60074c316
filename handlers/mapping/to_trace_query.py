"""From the query of a list of traces to what the store is asked."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from handlers.mapping.to_struct import FieldError, shown, to_query
from machines.exchange import DURABLE, EXCHANGE
from storage.rows import TraceQuery

EVENTS = frozenset(event for table in (EXCHANGE, DURABLE) for event, _ in table.edges)
STATES = frozenset(state.name for table in (EXCHANGE, DURABLE) for state in table.states)
OFFSET = re.compile(r" (\d\d:\d\d)$")  # a "+" in a query is a space


class Listing(Struct, frozen=True, kw_only=True):
    """The query of GET /interlock/exchanges. Times are Unix seconds, or as RFC 3339 has them."""

    event: str | None = None
    state: str | None = None
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    model: str | None = None
    response_id: str | None = None
    since: str | None = None
    until: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


def to_trace_query(params: Mapping[str, Any]) -> TraceQuery:
    """Read a query. Raises FieldError."""
    asked = to_query(params, Listing)
    for name, given, known in (("event", asked.event, EVENTS), ("state", asked.state, STATES)):
        if given is not None and given not in known:
            raise FieldError(name, f"no row of a request's tables has the {name} {shown(given)}")
    return TraceQuery(
        event=asked.event,
        state=asked.state,
        status=asked.status,
        model=asked.model,
        response_id=asked.response_id,
        since=None if asked.since is None else to_seconds("since", asked.since),
        until=None if asked.until is None else to_seconds("until", asked.until),
        after=asked.after,
        limit=asked.limit,
    )


def to_seconds(name: str, text: str) -> float:
    """Read a moment as Unix seconds. Raises FieldError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _to_stamp(OFFSET.sub(r"+\1", text))
    if not math.isfinite(seconds):
        raise FieldError(name, f"{shown(text)} is neither Unix seconds nor a time such as 2026-01-31T12:00:00Z")
    return seconds


def _to_stamp(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return math.nan if moment.tzinfo is None else moment.timestamp()
