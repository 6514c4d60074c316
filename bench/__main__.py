"""Measures, and prints one table: `python -m bench` for all, `python -m bench NAME...` for some."""

import importlib
from collections.abc import Callable
from typing import Any

import click

from bench.table import Row, show

# each is imported when it is measured: who decodes must load a fast BLAS before mlx, and the others need neither
MEASUREMENTS = {
    "decode": ("bench.decode", "measure"),
    "turns": ("bench.turns", "measure"),
    "requests": ("bench.instant", "requests"),
    "events": ("bench.instant", "events"),
    "latency": ("bench.instant", "latency"),
    "tracing": ("bench.tracing", "measure"),
    "memory": ("bench.memory", "measure"),
    "cancel": ("bench.cancel", "measure"),
    "space": ("bench.space", "measure"),
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option("--requests", default=100_000, show_default=True, help="How many requests memory is measured after.")
def main(names: tuple[str, ...], requests: int) -> None:
    """Measure what NAMES say, or everything, and print one table."""
    rows: list[Row] = []
    for name in names or MEASUREMENTS:
        print(f"{name}:", flush=True)
        module, function = MEASUREMENTS[name]
        measure: Callable[..., list[Row]] = getattr(importlib.import_module(module), function)
        given: dict[str, Any] = {"requests": requests} if name == "memory" else {}
        rows += measure(**given)
    print(f"\n{show(rows)}")


if __name__ == "__main__":
    main()
