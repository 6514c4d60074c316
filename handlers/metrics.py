"""What the server counts of itself, for Prometheus. Labels are words of the tables, and names of models that are known.

Each machine's moves are heard in one place. A model that a client made up is counted under an empty name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from falcon.asgi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from engine.pieces import Finish
from handlers.exchange import Exchange
from handlers.gauges import Gauges
from handlers.jobs import Job
from handlers.mapping.to_row import to_session_cache
from handlers.recent import ROWS, Recent
from handlers.services import Services
from handlers.write import Write
from machines.binding import OPERATOR_REFUSALS
from machines.driver import Driven, Move
from machines.exchange import FINAL, REFUSALS, State

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
MILLISECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30)
RATES = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 400)


class Metric(NamedTuple):
    """One metric that is fed as things happen; only a histogram has buckets."""

    help: str
    labels: tuple[str, ...]
    buckets: Sequence[float] = ()


# fmt: off
METRICS = {
    "interlock_moves_total": Metric("Moves of the machines.", ("machine", "event", "model")),
    "interlock_refusals_total": Metric("Requests refused, by the row that did it.", ("event", "status", "model")),
    "interlock_exchange_seconds": Metric("From a request's arrival to its final state.", ("model", "state"), SECONDS),
    "interlock_state_seconds": Metric("How long an exchange was in a state, such as QUEUED.", ("state",), SECONDS),
    "interlock_time_to_first_token_seconds": Metric("From arrival to the first output.", ("model",), SECONDS),
    "interlock_output_tokens_per_second": Metric("How fast an answer was decoded once begun.", ("model",), RATES),
    "interlock_tokens_total": Metric("Tokens read (of them, cached) and written.", ("model", "kind")),
    "interlock_session_cache_total": Metric("What was reused of caches, as in X-Session-Cache.", ("model", "outcome")),
    "interlock_write_seconds": Metric("How long the writes that landed took.", (), MILLISECONDS),
}
# fmt: on


class Landed(NamedTuple):
    """The last write that landed: when, in Unix seconds, and how long it took."""

    at: float
    ms: float


class Metrics:
    """The counters of one app. It hears of each move from the services it is made with."""

    def __init__(self, services: Services) -> None:
        self.registry = CollectorRegistry()
        self.recent = Recent()
        self.last_write: Landed | None = None
        self._services = services
        self._made = {name: _make(name, metric, self.registry) for name, metric in METRICS.items()}
        ProcessCollector(registry=self.registry)
        self.registry.register(Gauges(services))
        self._children: dict[tuple[str, ...], Any] = {}
        self._declare()
        services.heard = self.exchange_moved
        services.job_heard = self.job_moved
        services.models.heard = self.binding_moved
        services.writes.heard = self.write_moved
        services.writes.provisional.heard = self.provisional_moved

    def exchange_moved(self, exchange: Exchange, move: Move) -> None:
        """Hear of a move of an exchange."""
        model = exchange.model or ""
        self._moved(exchange.table.name, move, model)
        self._child("interlock_state_seconds", move.source._name_).observe(move.ms / 1000)
        if move.source is State.DISPATCHING:
            self._decoded(exchange, model)
        if move.target is State.REFUSED:
            self.refused(move.event, REFUSALS[move.event].status, model)
        if move.target in FINAL:
            seconds = sum(made.ms for made in exchange.trace) / 1000
            self._child("interlock_exchange_seconds", model, move.target._name_).observe(seconds)
            for made in exchange.output.trace:
                self._moved("output", made, model)

    def write_moved(self, write: Write, move: Move) -> None:
        """Hear of a move of a write."""
        self._moved("write", move, "")
        if move.event == "row_committed":
            ms = (write.entered - write.started) * 1000
            self.last_write = Landed(self._services.clock(), ms)
            self._child("interlock_write_seconds").observe(ms / 1000)

    def job_moved(self, job: Driven, move: Move) -> None:
        """Hear of a move of a background response; of one that a crash left behind, the model is not known."""
        self._moved("job", move, (job.head.request.model or "") if isinstance(job, Job) else "")

    def provisional_moved(self, move: Move) -> None:
        """Hear of a move of a row that was written before its terminal event."""
        self._moved("provisional", move, "")

    def binding_moved(self, model: str, move: Move) -> None:
        """Hear of a move of a model object, by its name if it has one."""
        self._moved("binding", move, model)

    def refused(self, event: str, status: int, model: str = "") -> None:
        """Count a refusal."""
        self._child("interlock_refusals_total", event, str(int(status)), model).inc()

    def _decoded(self, exchange: Exchange, model: str) -> None:
        measured = exchange.measured
        if measured.cached_tokens is not None:
            outcome = to_session_cache(measured.cached_tokens, exchange.chain)
            self._child("interlock_session_cache_total", model, outcome).inc()
        if measured.first_token_ms is not None:
            self._child("interlock_time_to_first_token_seconds", model).observe(measured.first_token_ms / 1000)
        if measured.tokens_per_second is not None:
            self._child("interlock_output_tokens_per_second", model).observe(measured.tokens_per_second)
        if exchange.finish is not None:
            self._finished(exchange.finish, model)

    def _finished(self, finish: Finish, model: str) -> None:
        counts = {"input": finish.prompt_tokens, "cached": finish.cached_tokens, "output": finish.completion_tokens}
        for kind, tokens in counts.items():
            self._child("interlock_tokens_total", model, kind).inc(tokens)

    def _declare(self) -> None:
        """Show what has not happened yet: a counter that is absent until it is 1 has no rate when it matters."""
        for machine, event, _, _ in ROWS:
            self._child("interlock_moves_total", machine, event, "")
        refusals = {(event, row.status) for rows in (REFUSALS, OPERATOR_REFUSALS) for event, row in rows.items()}
        for event, status in refusals:
            self._child("interlock_refusals_total", event, str(int(status)), "")

    def _moved(self, machine: str, move: Move, model: str) -> None:
        self.recent.add(machine, move)
        self._child("interlock_moves_total", machine, move.event, model).inc()

    def _child(self, *key: str) -> Any:
        """Find what counts under labels, given in their order; to ask the metric for it takes ten times as long."""
        if key not in self._children:
            name, *values = key
            self._children[key] = self._made[name].labels(*values) if values else self._made[name]
        return self._children[key]


class Exposition:
    """GET /metrics, as Prometheus or OpenMetrics text."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry = metrics.registry

    async def on_get(self, req: Request, resp: Response) -> None:
        encode, resp.content_type = choose_encoder(req.get_header("Accept") or "")
        resp.data = encode(self._registry)


def _make(name: str, metric: Metric, registry: CollectorRegistry) -> Any:
    if metric.buckets:
        return Histogram(name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)
    return Counter(name, metric.help, metric.labels, registry=registry)
