"""What an operator may set, read from the environment once."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from platformdirs import user_data_path

MEMORY = ":memory:"


class SettingsError(Exception):
    """A setting that cannot be used; its text names it and says what it takes."""


class Settings(Struct, frozen=True, kw_only=True):
    """`models` maps names to folders or hub ids, empty for the starter model; `db` None keeps no responses."""

    models: dict[str, str] = {}
    db: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 10 * 1024 * 1024
    queue_limit: int = 16
    write_wait_ms: int = 2000
    retention_seconds: int = 604800
    images: str = "note"


def default_db() -> str:
    """Where responses are kept unless said otherwise."""
    return str(user_data_path("interlock") / "responses.duckdb")


def from_env(env: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Raises SettingsError."""
    db = env.get("INTERLOCK_DB") or default_db()
    return Settings(
        models=to_models(_split(env.get("INTERLOCK_MODELS", ""))),
        db=None if db == "none" else db,
        port=_integer(env, "INTERLOCK_PORT", 8080, range(65536)),
        max_body_bytes=_integer(env, "INTERLOCK_MAX_BODY_BYTES", 10 * 1024 * 1024),
        queue_limit=_integer(env, "MLX_MAX_QUEUE_DEPTH_PER_MODEL", 16),
        write_wait_ms=_integer(env, "MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", 2000),
        retention_seconds=_integer(env, "MLX_RESPONSE_RETENTION_SECONDS", 604800),
        images=_choice(env, "INTERLOCK_IMAGES", ("note", "refuse")),
    )


def to_models(named: list[str]) -> dict[str, str]:
    """Read NAME=PATH_OR_HUB_ID pairs. Raises SettingsError."""
    models: dict[str, str] = {}
    for pair in filter(None, (text.strip() for text in named)):
        name, separator, source = (part.strip() for part in pair.partition("="))
        if not (separator and name and source):
            msg = f"A model is given as NAME=PATH_OR_HUB_ID, not {pair!r}."
            raise SettingsError(msg)
        if name in models:
            msg = f"Two models are named {name!r}; give each its own name."
            raise SettingsError(msg)
        models[name] = str(Path(source).expanduser()) if source.startswith("~") else source
    return models


def _choice(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = env.get(name, "").strip() or choices[0]
    if text not in choices:
        msg = f"{name} takes {' or '.join(choices)}, not {text!r}."
        raise SettingsError(msg)
    return text


def _split(models: str) -> list[str]:
    """Split at commas, or, if there are several lines, at those: paths may have commas in them."""
    return models.split("\n" if "\n" in models else ",")


def _integer(env: Mapping[str, str], name: str, default: int, allowed: range = range(1, 2**53)) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text[:20]) not in allowed:
        msg = f"{name} takes a whole number from {allowed[0]} to {allowed[-1]}, not {text!r}."
        raise SettingsError(msg)
    return int(text)
