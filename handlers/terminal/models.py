"""interlock models: what a running server serves, and how each model is."""

import click

from handlers.terminal.columns import to_lines
from handlers.terminal.server import Condition, asks_server, to_server

COLUMNS = ("model", "state", "running", "waiting", "note")


@click.command()
@asks_server
def models(url: str | None, token: str | None) -> None:
    """List the models of a running server."""
    with to_server(url, token) as server:
        status, served = server.health()
    rows = [COLUMNS, *((name, *to_cells(condition)) for name, condition in served.items())]
    click.echo("\n".join(to_lines(rows)) if served else "No model is served.")
    click.echo(f"The server is {status}.")


def to_cells(condition: Condition) -> tuple[str, ...]:
    """Say how one model is."""
    return (
        condition.state,
        f"{condition.running} of {condition.capacity}",
        f"{condition.waiting} of {condition.queue_limit}",
        "; ".join(_to_notes(condition)),
    )


def _to_notes(condition: Condition) -> list[str]:
    load = condition.load
    notes = [] if condition.seconds is None else [f"for {condition.seconds} s"]
    notes += [condition.reason] if condition.reason else []
    return [*notes, f"its replacement is {load.state}: {load.reason or f'for {load.seconds} s'}"] if load else notes
