"""interlock trace ID: the path of one request through its machine, from a running server or from the database."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from handlers.mapping.to_trace import Trace, to_trace
from handlers.settings import SettingsError, from_env
from handlers.terminal.columns import to_lines
from handlers.terminal.fault import Fault
from handlers.terminal.server import NoServerError, asks_server, to_server
from storage.opening import MEMORY


class Listing(msgspec.Struct, frozen=True):
    """The traces of one id."""

    data: list[Trace]


@click.command()
@click.argument("id", metavar="ID")
@asks_server
@click.option(
    "--db", type=click.Path(), metavar="PATH", help="Read this database, which no server has open, and ask no server."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def trace(*, id: str, url: str | None, token: str | None, db: str | None, as_json: bool) -> None:  # noqa: A002
    """Show how a request went.

    ID is that of its exchange (ex_...), as the log and the X-Interlock-Exchange header have it, or of its response
    (resp_...). Without a server it is looked for in the database.
    """
    found = read_traces(db, id) if db else _ask(id, url, token)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for one in found:
        click.echo("\n".join([to_title(one), *to_path(one)]))


def _ask(known_as: str, url: str | None, token: str | None) -> list[dict[str, Any]]:
    with to_server(url, token) as server:
        try:
            found = server.get(f"/traces/{quote(known_as, safe='')}", Listing).data
            return [msgspec.to_builtins(one) for one in found]
        except NoServerError:
            if url:
                raise
    return read_traces(_default_db(), known_as)


def read_traces(db: str, known_as: str) -> list[dict[str, Any]]:
    """Read traces from a database that no server has open."""
    from storage.errors import StoreError  # noqa: PLC0415 - DuckDB would make each command slow, and the server's fork unsafe
    from storage.store import open_store  # noqa: PLC0415

    if not Path(db).is_file():
        text = f"no server answers, and there is no database at {db}."
        raise Fault(text)
    try:
        store = open_store(db)
        try:
            rows = asyncio.run(store.traces(known_as))
        finally:
            store.close_now()
    except StoreError as error:
        raise Fault(str(error)) from error
    if not rows:
        text = f"no exchange or response {known_as!r} left a trace in {db}."
        raise Fault(text)
    return [msgspec.to_builtins(to_trace(row)) for row in rows]


def _default_db() -> str:
    try:
        db = from_env().db
    except SettingsError as error:
        raise Fault(str(error)) from error
    if db is None or db == MEMORY:
        text = "no server answers, and INTERLOCK_DB names no file to read."
        raise Fault(text)
    return db


def to_title(trace: dict[str, Any]) -> str:
    """Name one exchange."""
    known = [trace[name] for name in ("model", "response_id") if trace[name]]
    return "  ".join([trace["id"], f"{trace['method']} {trace['path']}", *known])


def to_path(trace: dict[str, Any]) -> list[str]:
    """Lay out the moves: each state, how long it lasted, and the event that ended it."""
    rows = [(f"  {move['from']}", f"{move['ms']:.1f} ms", move["event"]) for move in trace["moves"]]
    total = f"{sum(move['ms'] for move in trace['moves']):.1f} ms"
    ending = f"status {trace['status']}" if trace["status"] else "in all" if trace["ended_at"] else "so far"
    return to_lines([*rows, (f"  {trace['state']}", total, ending)], right=frozenset({1}))
