"""From the row that keeps how an exchange went to what is told of it."""

from collections.abc import Mapping
from string import Formatter
from typing import Literal

from msgspec import Struct, json

from machines.exchange import DURABLE, DURABLE_FAILURES, EXCHANGE, FAILURES, REFUSALS, State
from machines.table import Failure
from storage.rows import ExchangeRow

Moved = tuple[str, str, str]
Facts = dict[str, int | float]
read_moves, read_facts = json.Decoder(list[Moved]).decode, json.Decoder(Facts).decode
FAILED_BY: dict[str, Mapping[str, Failure]] = {EXCHANGE.name: FAILURES, DURABLE.name: DURABLE_FAILURES}


class Move(Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One move; `ms` is how long the state that was left had lasted."""

    event: str
    source: str
    target: str
    ms: float


class Trace(Struct, frozen=True, kw_only=True):
    """How an exchange went. Times are Unix seconds; one that is under way has not `ended_at`.

    `code` and `message` are those of the row that refused or failed it, with no more than numbers filled in.
    """

    object: Literal["exchange"] = "exchange"
    id: str
    machine: str
    started_at: float
    ended_at: float | None
    method: str
    path: str
    state: str
    event: str
    status: int | None
    model: str | None
    response_id: str | None
    moves: list[Move]
    facts: Facts
    code: str | None
    message: str | None


class Page(Struct, frozen=True, kw_only=True):
    """Some traces of a list."""

    object: Literal["list"] = "list"
    data: list[Trace]
    first_id: str | None
    last_id: str | None
    has_more: bool


def to_page(traces: list[Trace], limit: int) -> Page:
    """Make a page of the first traces; whether there are more tells that there is another."""
    data = traces[:limit]
    return Page(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=len(traces) > limit,
    )


def to_trace(row: ExchangeRow, in_state: float | None = None) -> Trace:
    """Tell how an exchange went; `in_state` is for how many seconds one under way has been in its last state."""
    moves = [
        Move(event=event, source=source, target=target, ms=round(ms, 3))
        for (event, source, target), ms in zip(read_moves(row.moves), row.ms, strict=True)
    ]
    spent = sum(move.ms for move in moves) / 1000 + (in_state or 0)
    measured = {**read_facts(row.facts), **_to_told(row, moves)}
    facts = {name: round(number, 3) for name, number in measured.items()}
    if in_state is not None:
        facts["in_state_ms"] = round(in_state * 1000, 3)
    code, message = to_sentence(row, moves, facts)
    return Trace(
        id=row.id,
        machine=row.machine,
        started_at=round(row.ended_at - spent, 3),
        ended_at=row.ended_at if in_state is None else None,
        method=row.method,
        path=row.path,
        state=row.state,
        event=row.event,
        status=row.status,
        model=row.model,
        response_id=row.response_id,
        moves=moves,
        facts=facts,
        code=code,
        message=message,
    )


def to_sentence(row: ExchangeRow, moves: list[Move], facts: Facts) -> tuple[str | None, str | None]:
    """Give the code and the sentence of the row that refused or failed an exchange, if one did."""
    if row.state == State.REFUSED.name and (refusal := REFUSALS.get(row.event)):
        return refusal.code, fill(refusal.message, facts)
    failures = FAILED_BY.get(row.machine, {})
    led = [move.event for move in moves if move.target == State.FAILING.name and move.event in failures]
    return (failures[led[-1]].code, fill(failures[led[-1]].message, facts)) if led else (None, None)


def fill(message: str, facts: Facts) -> str:
    """Put numbers in their places; the places of texts keep their names."""
    parts = Formatter().parse(message)
    return "".join(text + ("" if name is None else str(facts.get(name, f"{{{name}}}"))) for text, name, _, _ in parts)


def _to_told(row: ExchangeRow, moves: list[Move]) -> Facts:
    """Give the numbers that the moves and the table tell."""
    refusal = REFUSALS.get(row.event) if row.state == State.REFUSED.name else None
    wait = refusal and refusal.retry_after
    written = next((move.ms for move in moves if move.event == "row_written"), None)
    return {name: told for name, told in (("write_ms", written), ("retry_after", wait)) if told is not None}
