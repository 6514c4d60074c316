"""The `interlock` command: its options become settings in the environment, which gunicorn's worker reads."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from handlers.settings import SettingsError, from_env, to_models, to_tokens
from handlers.terminal.chat import chat
from handlers.terminal.config import config
from handlers.terminal.fault import Fault
from handlers.terminal.models import models
from handlers.terminal.trace import trace

STARTED = "To begin: 'interlock serve', and in another terminal 'interlock chat'. The README tells the rest."
SET = "Every option is also a variable, and there are more: 'interlock config' lists them, the README explains them."


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=STARTED)
@click.version_option(package_name="interlock")
def cli() -> None:
    """Serve the OpenAI Responses API over local MLX models."""


@cli.command(epilog=SET)
@click.option("--model", "models", multiple=True, metavar="NAME=PATH_OR_HUB_ID",
              help="Serve this model under this name; repeat for more. Default: the starter model.")  # fmt: skip
@click.option("--host", metavar="ADDRESS", help="Address to listen at (default 127.0.0.1; others need a token).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port (default 8080; 0 picks a free one).")
@click.option("--token", "tokens", multiple=True, metavar="[NAME=]TOKEN",
              help="Answer only who sends this token; repeat for more, each with a name. Other users of this machine "
              "can read a command line, so the variable INTERLOCK_TOKEN is safer.")  # fmt: skip
@click.option("--db", type=click.Path(), metavar="PATH",
              help="Database of past responses; default: in your data folder. ':memory:' forgets.")  # fmt: skip
@click.option("--log", type=click.Choice(["text", "json"]), help="How to write the log (default text).")
@click.option("--no-store", is_flag=True, help="Keep no responses, not even in memory.")
def serve(*, db: str | None, no_store: bool, **options: Any) -> None:
    """Serve models until interrupted.

    The first start fetches a small model and serves it on 127.0.0.1:8080. To serve others:

        interlock serve --model qwen=mlx-community/Qwen3-4B-4bit
    """
    if db is not None and no_store:
        raise click.UsageError("--db and --no-store exclude each other.")  # noqa: EM101, TRY003 - a usage line
    os.environ.update(to_env({**options, "db": "none" if no_store else db}))
    from gunicorn.app.wsgiapp import WSGIApplication  # noqa: PLC0415 - not needed by the other commands

    sys.argv = ["interlock", "--config", "python:handlers.gunicorn_conf"]
    WSGIApplication("%(prog)s", prog="interlock").run()


def to_env(options: Mapping[str, Any]) -> dict[str, str]:
    """Make the variables of the options that were given."""
    try:
        served, tokens = to_models(list(options["models"])), to_tokens(list(options["tokens"]))
    except SettingsError as error:
        raise Fault(str(error)) from error
    if options["tokens"] and not all(token.strip() for token in options["tokens"]):
        raise Fault("--token is empty; leave it out, or give it a token.")  # noqa: EM101, TRY003 - whole
    given = {
        "INTERLOCK_MODELS": "".join(f"{name}={source}\n" for name, source in served.items()),
        "INTERLOCK_TOKEN": "".join(f"{name}={token}\n" for name, token in tokens.items()),
        "INTERLOCK_HOST": options["host"],
        "INTERLOCK_PORT": options["port"],
        "INTERLOCK_DB": options["db"],
        "INTERLOCK_LOG": options["log"],
    }
    return {name: str(value) for name, value in given.items() if value not in {None, ""}}


@cli.command()
def prepare() -> None:
    """Check the database and fetch the starter model, without serving."""
    from engine.blas import load_fast_blas  # noqa: PLC0415 - mlx must be imported after a fast BLAS

    load_fast_blas()
    from engine.errors import EngineError  # noqa: PLC0415
    from handlers.serving import prepare as check  # noqa: PLC0415
    from storage.errors import LockedDatabaseError, StoreError  # noqa: PLC0415

    try:
        check(from_env())
    except LockedDatabaseError as error:
        text = f"{error} (--db PATH chooses another file, --no-store keeps none.)"
        raise Fault(text) from error
    except (EngineError, SettingsError, StoreError) as error:
        raise Fault(str(error)) from error


@cli.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a drawing is stale or missing.")
@click.option("--out", type=click.Path(), metavar="DIR", help="Another folder than diagrams/.")
def diagrams(*, check: bool, out: str | None) -> None:
    """Draw the machines that requests follow."""
    from diagrams.draw import main as draw  # noqa: PLC0415 - not needed by the other commands

    try:
        sys.exit(draw([*(["--check"] if check else []), *(["--out", out] if out else [])]))
    except OSError as error:
        text = f"{error.filename} cannot be written: {error.strerror}."
        raise Fault(text) from error


for command in (models, trace, config, chat):
    cli.add_command(command)


def main() -> None:
    """Run the command line; an interrupt ends it without a traceback."""
    cli(prog_name="interlock")


if __name__ == "__main__":
    main()
