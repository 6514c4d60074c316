"""What stays of an exchange that has ended: a line in the log, and its trace in the store. No content."""

import logging
from enum import Enum
from functools import cache, lru_cache, partial
from string import Formatter
from typing import Any

from msgspec import json, to_builtins

from handlers.exchange import Exchange
from machines.exchange import REFUSALS, STRANGERS, State
from storage.rows import ExchangeRow

log = logging.getLogger("interlock.exchange")
encode = json.Encoder().encode

NAMED = ("caller", "model", "response_id", "previous_response_id", "param")  # facts that the log line gives


def report(exchange: Exchange) -> None:
    """Log how an exchange went, and have its trace kept: it is under way no longer."""
    try:
        log_path(exchange)
        keep(exchange)
    finally:
        exchange.services.exchanges.discard(exchange)


def log_path(exchange: Exchange) -> None:
    """Log one line: the milliseconds in each state and what ended it, and what is known of the request."""
    path = " ".join(f"{move.source._name_.lower()}={move.ms:.1f}:{move.event}" for move in exchange.trace)
    status, facts = to_status(exchange), exchange.facts
    known = "".join(f" {name}={facts[name]!r}" for name in NAMED if name in facts)
    log.info(
        "%s %s %r%s: %s by %s%s [%s]", exchange.id, facts["method"], facts["path"], known, exchange.state.value,
        exchange.event, f" {status}" if status else "", path, extra={"fields": partial(_to_fields, exchange)},
    )  # fmt: skip


def keep(exchange: Exchange) -> None:
    """Have the store keep the trace, unless traces are turned off, or a stranger would fill the disk."""
    services = exchange.services
    try:
        if services.store is not None and services.is_tracing and exchange.event not in STRANGERS:
            services.store.record(to_trace_row(exchange))
    except Exception:  # the exchange has ended well, and its trace is no reason to say otherwise
        log.exception("%s: its trace could not be kept", exchange.id)


def to_trace_row(exchange: Exchange) -> ExchangeRow:
    """Give the trace of an exchange that ends now, or of one under way as far as it is.

    Only the clock is cut, to a millisecond: to round all that was measured takes long, and few traces are ever read.
    """
    # one may be looked at before its first move
    events, sources, targets, ms = zip(*exchange.trace, strict=True) if exchange.trace else ((), (), (), ())
    return ExchangeRow(
        id=exchange.id,
        ended_at=int(exchange.services.clock() * 1000) / 1000,
        machine=exchange.table.name,
        method=exchange.incoming.method,
        path=exchange.incoming.path,
        state=exchange.state._name_,
        event=exchange.event,
        status=to_status(exchange),
        model=exchange.model,
        response_id=exchange.known_as,
        moves=_path(events, sources, targets),
        ms=ms,
        facts=_to_facts(exchange),
    )


def to_status(exchange: Exchange) -> int | None:
    """Give the status of the row that refused an exchange, if one did."""
    return REFUSALS[exchange.event].status.value if exchange.state is State.REFUSED else None


def _to_facts(exchange: Exchange) -> str:
    """Give what was measured, and of what the refusing row tells the numbers: a text may be the client's own."""
    if exchange.state is not State.REFUSED:
        return encode(exchange.measured).decode()
    known = exchange.facts
    told = {name: known[name] for name in _places(exchange.event) if type(known.get(name)) in {int, float}}
    return encode({**to_builtins(exchange.measured), **told}).decode()


@lru_cache(1000)
def _path(events: tuple[str, ...], sources: tuple[Enum, ...], targets: tuple[Enum, ...]) -> str:
    """Give moves as JSON; most requests make those of a few others."""
    moves = zip(events, sources, targets, strict=True)
    return encode([(event, source.name, target.name) for event, source, target in moves]).decode()


@cache
def _places(event: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(REFUSALS[event].message) if name]


def _to_fields(exchange: Exchange) -> dict[str, Any]:
    spent: dict[str, float] = {}
    for move in exchange.trace:
        state = move.source.name.lower()
        spent[state] = round(spent.get(state, 0) + move.ms, 1)
    told = ("method", "path", *NAMED)
    known = {name: exchange.facts[name] for name in told if name in exchange.facts}
    fields = {"exchange": exchange.id, **known}
    ended = {"state": exchange.state.name.lower(), "event": exchange.event, "status": to_status(exchange)}
    return {**fields, **ended, "ms": spent}
