"""How an exchange went, in lines of text."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from handlers.mapping.to_trace import Trace
from handlers.terminal.columns import to_lines

COLUMNS = ("ended", "id", "state", "status", "event", "model", "ms")
ROW = {
    "row_written": "written",
    "row_late": "not yet written when its exchange ended",
    "row_lost": "lost: it could not be written",
    "row_unwanted": "none wanted",
}


def to_listing(traces: Sequence[Trace]) -> list[str]:
    """Lay out a list, one exchange a line."""
    return to_lines([COLUMNS, *map(_to_cells, traces)], right=frozenset({6}))


def to_path(trace: Trace) -> list[str]:
    """Lay out one exchange: each state, how long it lasted and the event that ended it, and what was measured."""
    known = [name for name in (trace.model, trace.response_id) if name]
    title = "  ".join([trace.id, f"{trace.method} {trace.path}", *known])
    rows = [(f"  {move.source}", f"{move.ms:.1f} ms", move.event) for move in trace.moves]
    ending = f"status {trace.status}" if trace.status else "so far" if trace.ended_at is None else "in all"
    lasted = trace.facts.get("in_state_ms", _total(trace))
    path = to_lines([*rows, (f"  {trace.state}", f"{lasted:.1f} ms", ending)], right=frozenset({1}))
    return [title, *path, "", *to_lines([(f"  {name}", told) for name, told in _to_told(trace)])]


def _to_told(trace: Trace) -> Iterator[tuple[str, str]]:
    facts = trace.facts
    yield "began", _to_time(trace.started_at, "milliseconds")
    if "ahead" in facts:
        running = f", {facts['running']} were decoding" if "running" in facts else ""
        yield "queue", f"{facts['ahead']} waited before it{running}"
    if "prompt_tokens" in facts:
        cached = f", {facts['cached_tokens']} of them cached" if "cached_tokens" in facts else ""
        yield "prompt", f"{facts['prompt_tokens']} tokens{cached}"
    if told := list(_to_answer(trace)):
        yield "answer", ", ".join(told)
    written = next((move.event for move in reversed(trace.moves) if move.event in ROW), None)
    if written:
        yield "row", ROW[written] + (f" in {facts['write_ms']:.1f} ms" if "write_ms" in facts else "")
    if trace.message is not None:
        code = f", code {trace.code}" if trace.code else ""
        word = f"{trace.status or trace.state.lower()} by {_to_cause(trace)}{code}"
        yield "why", f"{word}: {_fill(trace, trace.message)}"


def _to_answer(trace: Trace) -> Iterator[str]:
    facts = trace.facts
    if "output_tokens" in facts:
        yield f"{facts['output_tokens']} tokens"
    if "first_token_ms" in facts:
        yield f"the first after {facts['first_token_ms']:.1f} ms"
    if "tokens_per_second" in facts:
        yield f"then {facts['tokens_per_second']:.1f} tokens/s"


def _to_cells(trace: Trace) -> tuple[str, ...]:
    ended = _to_time(trace.ended_at, "seconds") if trace.ended_at is not None else "under way"
    status = str(trace.status or "-")
    return ended, trace.id, trace.state, status, _to_cause(trace), trace.model or "-", f"{_total(trace):.1f}"


def _to_cause(trace: Trace) -> str:
    """Name the event that decided the end: of a failure the one that led to it, not that the client was told."""
    return next((move.event for move in reversed(trace.moves) if move.target == "FAILING"), trace.event)


def _fill(trace: Trace, message: str) -> str:
    named = message if trace.model is None else message.replace("{model}", repr(trace.model))
    return named.replace("{exchange}", trace.id)


def _total(trace: Trace) -> float:
    return sum(move.ms for move in trace.moves) + trace.facts.get("in_state_ms", 0)


def _to_time(seconds: float, precision: str) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", precision)
