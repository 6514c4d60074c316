"""interlock models: what a running server serves, and how each model is."""

from typing import Any

import click

from handlers.terminal.columns import to_lines
from handlers.terminal.server import asks_server, to_server

COLUMNS = ("model", "state", "running", "waiting", "note")


@click.command()
@asks_server
def models(url: str | None, token: str | None) -> None:
    """List the models of a running server."""
    with to_server(url, token) as server:
        health = server.health()
    rows = [COLUMNS, *((name, *to_cells(condition)) for name, condition in health["models"].items())]
    click.echo("\n".join(to_lines(rows)) if health["models"] else "No model is served.")
    click.echo(f"The server is {health['status']}.")


def to_cells(condition: dict[str, Any]) -> tuple[str, ...]:
    """Say how one model is."""
    return (
        condition["state"],
        f"{condition['running']} of {condition['capacity']}",
        f"{condition['waiting']} of {condition['queue_limit']}",
        "; ".join(_to_notes(condition)),
    )


def _to_notes(condition: dict[str, Any]) -> list[str]:
    load = condition.get("load")
    notes = [f"for {condition['seconds']} s"] if "seconds" in condition else []
    notes += [condition["reason"]] if "reason" in condition else []
    if load is not None:
        more = load.get("reason") or f"for {load['seconds']} s"
        notes.append(f"its replacement is {load['state']}: {more}")
    return notes
