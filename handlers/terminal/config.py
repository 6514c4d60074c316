"""interlock config: the settings in effect, and where each comes from."""

import os
from typing import Any

import click

from handlers.settings import READERS, SettingsError, from_env
from handlers.terminal.columns import to_lines
from handlers.terminal.fault import Fault


@click.command()
def config() -> None:
    """Show the settings in effect.

    They are those that 'serve' would have without options, and where each is from. Tokens are hidden.
    """
    try:
        settings = from_env()
    except SettingsError as error:
        raise Fault(str(error)) from error
    rows = [(name, to_text(field, getattr(settings, field)), _source(name)) for name, (field, _) in READERS.items()]
    click.echo("\n".join(to_lines(rows)))


def to_text(field: str, value: Any) -> str:
    """Show a value in one line; of tokens, the names alone."""
    if field == "tokens":
        return ", ".join(f"{name}=(hidden)" for name in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={source}" for name, source in value.items()) or "the starter model"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if value is None:
        return "none" if field == "db" else "automatic"
    return str(value)


def _source(name: str) -> str:
    return "environment" if os.environ.get(name, "").strip() else "default"
