"""interlock trace: the path of one request through its machine, or a list of the last ones."""

import json
import re
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from handlers.mapping.to_drawing import to_lit_drawing
from handlers.mapping.to_trace import Trace
from handlers.terminal.fault import Fault
from handlers.terminal.path import to_listing, to_path
from handlers.terminal.server import asks_server
from handlers.terminal.traces import Asked, find, look_for

DURATION = re.compile(r"(\d+)\s*([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command()
@click.argument("id", metavar="[ID]", required=False)
@asks_server
@click.option(
    "--db", type=click.Path(), metavar="PATH", help="Read this database, which no server has open, and ask no server."
)
@click.option("--svg", type=click.Path(), metavar="FILE", help="Draw the machine with the path lit, into this file.")
@click.option("--event", metavar="EVENT", help="List those whose path has this event, such as queue_full.")
@click.option("--state", metavar="STATE", help="List those in this state, such as REFUSED.")
@click.option("--status", type=click.IntRange(100, 599), help="List those refused with this status.")
@click.option("--model", metavar="NAME", help="List those that this model was asked.")
@click.option("--since", metavar="TIME", help="List those that ended since: 10m, 2h, 7d, or 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="List those that ended by then.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many to list (default 20).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def trace(
    *, id: str | None, url: str | None, token: str | None, db: str | None, svg: str | None, as_json: bool, **given: Any  # noqa: A002
) -> None:  # fmt: skip
    """Show how a request went, or list the last ones.

    ID is that of its exchange (ex_...), as the X-Interlock-Exchange header of its reply and the log have it, or of its
    response (resp_...). Without a server it is looked for in the database.
    """
    asked, picked = Asked(url, token, db), {name: value for name, value in given.items() if value is not None}
    if id is not None and picked:
        text = f"--{next(iter(picked))} picks from the list, which is shown without an ID."
        raise click.UsageError(text)
    if id is None and svg:
        raise click.UsageError("--svg draws one path; give its ID.")  # noqa: EM101, TRY003 - a usage line
    if id is None:
        _list(asked, picked, as_json=as_json)
    else:
        _show(find(asked, id), svg, as_json=as_json)


def _show(found: Trace, svg: str | None, *, as_json: bool) -> None:
    if svg:
        try:
            Path(svg).write_text(to_lit_drawing(found), encoding="utf-8")
        except OSError as error:
            text = f"{svg} could not be written ({error.strerror}); give another file."
            raise Fault(text) from error
    click.echo(_to_json(found) if as_json else "\n".join(to_path(found)))


def _list(asked: Asked, picked: dict[str, Any], *, as_json: bool) -> None:
    if "state" in picked:
        picked["state"] = picked["state"].upper()
    for name in picked.keys() & {"since", "until"}:
        if found := DURATION.fullmatch(picked[name]):
            picked[name] = f"{time.time() - int(found[1]) * SECONDS[found[2]]:.3f}"
    page = look_for(asked, {name: str(value) for name, value in picked.items()})
    if as_json:
        click.echo(_to_json(page))
        return
    click.echo("\n".join(to_listing(page.data)) if page.data else "No request is to be found.")
    if page.has_more:
        click.echo(
            "There are more; raise --limit, or pick by --event, --state, --status, --model, --since or --until.",
            err=True,
        )


def _to_json(found: Any) -> str:
    return json.dumps(msgspec.to_builtins(found), indent=2)
