"""What is measured when it is asked for: the models' queues and states, the exchanges and writes under way."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from handlers.services import Services
from machines.binding import State as Model
from machines.exchange import EXCHANGE
from machines.table import Table
from machines.write import WRITE


class Gauge(NamedTuple):
    """One metric that is looked up at each scrape."""

    help: str
    labels: tuple[str, ...]


# fmt: off
GAUGES = {
    "interlock_exchanges": Gauge("Requests under way, by the state they are in.", ("state",)),
    "interlock_running": Gauge("Requests that decode.", ("model",)),
    "interlock_waiting": Gauge("Requests that wait for a place at the model.", ("model",)),
    "interlock_queue_limit": Gauge("How many may wait; one more is a 429.", ("model",)),
    "interlock_capacity": Gauge("How many may decode together.", ("model",)),
    "interlock_model_state": Gauge("1 for the state a model is in, 0 for the others.", ("model", "state")),
    "interlock_engine_step_seconds": Gauge("How long the engine's current step has taken; 0 when idle.", ("model",)),
    "interlock_writes": Gauge("Rows not at their end, by state: LATE, WEDGED, FAILED (to be tried again) ...",
                              ("state",)),
    "interlock_dropped_traces": Gauge("Traces since the start that could not be kept; 0 is right.", ()),
}
# fmt: on


class Gauges(Collector):
    """Looks at the services when it is collected."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Measure everything anew."""
        families = {name: GaugeMetricFamily(name, gauge.help, labels=gauge.labels) for name, gauge in GAUGES.items()}
        services = self._services
        _add_states(families["interlock_exchanges"], EXCHANGE, (driven.state.name for driven in services.exchanges))
        _add_states(families["interlock_writes"], WRITE, (write.state.name for write in services.writes.unended))
        if services.store is not None:
            families["interlock_dropped_traces"].add_metric([], services.store.dropped_traces)
        for name, binding in services.models.items():
            values = {
                "interlock_running": binding.slots.running,
                "interlock_waiting": binding.slots.waiting,
                "interlock_queue_limit": binding.slots.limit,
                "interlock_capacity": binding.slots.capacity,
                "interlock_engine_step_seconds": binding.engine.step_seconds,
            }
            for metric, value in values.items():
                families[metric].add_metric([name], value)
            for state in Model:
                families["interlock_model_state"].add_metric([name, state.name], float(binding.state is state))
        yield from families.values()


def _add_states(family: GaugeMetricFamily, table: Table, names: Iterator[str]) -> None:
    counts = Counter(names)
    for state in table.states:
        if state not in table.final:
            family.add_metric([state.name], counts[state.name])
