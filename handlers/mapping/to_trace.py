"""From the row that keeps how an exchange went to what is told of it."""

import msgspec
from msgspec import Struct

from storage.rows import ExchangeRow


class Move(Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One move; `ms` is how long the state that was left had lasted."""

    event: str
    source: str
    target: str
    ms: float


class Trace(Struct, frozen=True, kw_only=True):
    """How an exchange went; `ended_at` is in Unix seconds, and None while it is under way."""

    id: str
    ended_at: int | None
    method: str
    path: str
    state: str
    event: str
    status: int | None
    model: str | None
    response_id: str | None
    moves: list[Move]


def to_trace(row: ExchangeRow, *, has_ended: bool = True) -> Trace:
    """Read the moves of a row."""
    moves = msgspec.json.decode(row.moves, type=list[tuple[str, str, str, float]])
    return Trace(
        id=row.id,
        ended_at=row.ended_at if has_ended else None,
        method=row.method,
        path=row.path,
        state=row.state,
        event=row.event,
        status=row.status,
        model=row.model,
        response_id=row.response_id,
        moves=[Move(event=event, source=source, target=target, ms=ms) for event, source, target, ms in moves],
    )
