"""The `interlock` command: its options become settings in the environment, which gunicorn's worker reads."""

import os
import sys
from typing import NoReturn

import click

from handlers.settings import SettingsError, from_env, to_models

FAULT = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="interlock")
def cli() -> None:
    """Serve the OpenAI Responses API over local MLX models."""


@cli.command()
@click.option("--model", "models", multiple=True, metavar="NAME=PATH_OR_HUB_ID",
              help="Serve this model under this name; repeat for more. Default: the starter model.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help="Port on 127.0.0.1 (default 8080; 0 picks a free one).")
@click.option(
    "--db",
    metavar="PATH",
    help="Database of past responses; default: in your data folder. ':memory:' forgets.",
)
@click.option("--no-store", is_flag=True, help="Keep no responses, not even in memory.")
def serve(models: tuple[str, ...], port: int | None, db: str | None, no_store: bool) -> None:  # noqa: FBT001 - click
    """Serve models until interrupted."""
    if db is not None and no_store:
        raise click.UsageError("--db and --no-store exclude each other.")  # noqa: EM101, TRY003 - a usage line
    options = {
        "INTERLOCK_MODELS": "".join(f"{name}={source}\n" for name, source in _checked(models).items()),
        "INTERLOCK_PORT": "" if port is None else str(port),
        "INTERLOCK_DB": "none" if no_store else db or "",
    }
    os.environ.update({name: text for name, text in options.items() if text})
    from gunicorn.app.wsgiapp import WSGIApplication  # noqa: PLC0415 - not needed by the other commands

    sys.argv = ["interlock", "--config", "python:handlers.gunicorn_conf"]
    WSGIApplication("%(prog)s", prog="interlock").run()


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
        _exit(f"{error} (--db PATH chooses another file, --no-store keeps none.)")
    except (EngineError, SettingsError, StoreError) as error:
        _exit(error)


def _checked(models: tuple[str, ...]) -> dict[str, str]:
    try:
        return to_models(list(models))
    except SettingsError as error:
        _exit(error)


def _exit(error: Exception | str) -> NoReturn:
    click.echo(f"interlock: {error}", err=True)
    sys.exit(FAULT)


def main() -> None:
    """Run the command line; an interrupt ends it without a traceback."""
    cli()


if __name__ == "__main__":
    main()
