"""What an operator may set, read from the environment once."""

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from platformdirs import user_data_path

log = logging.getLogger("interlock.settings")

LARGEST = 2**53 - 1
# what follows the name is not all "=", or it would be the padding of a base64 token without a name
NAMED_TOKEN = re.compile(r"([\w.-]{1,64})=(?!=*\Z)(.+)", re.ASCII)
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s*]+")


class SettingsError(Exception):
    """A setting that cannot be used; its text names it and says what it takes."""


class Settings(Struct, frozen=True, kw_only=True):
    """`models` maps names to folders or hub ids, empty for the starter model; `db` None keeps no responses.

    `tokens` maps names to tokens. With none, whoever asks from this machine may; else, whoever sends one of them.
    """

    models: dict[str, str] = {}
    db: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 10 * 1024 * 1024
    max_input_items: int = 10_000
    capacity: int = 8  # decodes that run together on one model
    cache_bytes: int | None = None  # of each model's KV caches; None shares out a quarter of the memory
    prefill_step: int | None = None  # prompt tokens computed in one step; None is what the device is good at
    stall_seconds: int = 120
    watch_seconds: float = 1
    queue_limit: int = 16
    write_wait_ms: int = 2000
    persist_wait_ms: int = 5000
    persist_hard_ms: int = 60_000  # 0 never gives up
    durable: bool = False  # write the row before the terminal event
    marker_ttl_ms: int = 300_000
    max_chain_depth: int = 1000
    sweep_seconds: int = 300
    retention_seconds: int = 604_800
    trace_retention_seconds: int = 604_800  # 0 keeps no traces
    images: str = "note"
    heartbeat_seconds: float = 10
    log: str = "text"
    tokens: dict[str, str] = {}
    cors: tuple[str, ...] = ()  # origins whose pages may ask; "*" is all of them
    socket_seconds: float = 3600  # how long a WebSocket may last


def default_db() -> str:
    """Where responses are kept unless said otherwise."""
    return str(user_data_path("interlock") / "responses.duckdb")


def from_env(env: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; what is unset or blank has its default. Raises SettingsError."""
    given = {name: env.get(name, "").strip(" \t\r") for name in READERS}
    read = {field: reader(name, given[name]) for name, (field, reader) in READERS.items() if given[name]}
    return Settings(**{"db": default_db(), **read})


def to_models(named: list[str]) -> dict[str, str]:
    """Read NAME=PATH_OR_HUB_ID pairs. Raises SettingsError."""
    models: dict[str, str] = {}
    for pair in filter(None, (text.strip() for text in named)):
        name, separator, source = (part.strip() for part in pair.partition("="))
        if not (separator and name and source):
            msg = f"A model is given as NAME=PATH_OR_HUB_ID, not {pair!r}."
            raise SettingsError(msg)
        if not name.isprintable():
            msg = f"The name of a model must be printable, and {name!r} is not."
            raise SettingsError(msg)
        if name in models:
            msg = f"Two models are named {name!r}; give each its own name."
            raise SettingsError(msg)
        models[name] = str(Path(source).expanduser()) if source.startswith("~") else source
    return models


def to_tokens(given: list[str]) -> dict[str, str]:
    """Read tokens, each alone or as NAME=TOKEN. Raises SettingsError, which repeats none of them."""
    tokens: dict[str, str] = {}
    for text in filter(None, (text.strip() for text in given)):
        name, token = found.groups() if (found := NAMED_TOKEN.fullmatch(text)) else ("default", text)
        if not token.isprintable() or " " in token:
            msg = f"The token {name!r} has a character that no header can carry, or a space."
            raise SettingsError(msg)
        if name in tokens:
            msg = f"Two tokens are named {name!r}; give each its own name, as in NAME=TOKEN."
            raise SettingsError(msg)
        if token in tokens.values():
            msg = f"The token {name!r} is that of another name; give each name its own."
            raise SettingsError(msg)
        tokens[name] = token
    return tokens


def _models(_: str, text: str) -> dict[str, str]:
    return to_models(_listed(text))


def _tokens(_: str, text: str) -> dict[str, str]:
    return to_tokens(_listed(text))


def _listed(text: str) -> list[str]:
    # paths may have commas in them, so lines win over commas
    return text.split("\n" if "\n" in text else ",")


def _origins(name: str, text: str) -> tuple[str, ...]:
    origins = tuple(origin.strip().lower().rstrip("/") for origin in _listed(text) if origin.strip())
    for origin in origins:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            msg = f"{name} takes origins such as https://app.example, or * for all, not {origin!r}."
            raise SettingsError(msg)
    return origins


def _host(name: str, text: str) -> str:
    host = text.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[\w.:%-]+", host):
        msg = f"{name} takes an address or the name of one, not {text!r}."
        raise SettingsError(msg)
    return host


def _db(_: str, text: str) -> str | None:
    return None if text == "none" else text


def _whole(name: str, text: str, allowed: range = range(1, LARGEST + 1)) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:20]) not in allowed:
        msg = f"{name} takes a whole number from {allowed[0]} to {allowed[-1]}, not {text!r}."
        raise SettingsError(msg)
    return int(text)


def _word(name: str, text: str, meanings: Mapping[str, Any]) -> Any:
    if text.lower() not in meanings:
        msg = f"{name} takes {' or '.join(meanings)}, not {text!r}."
        raise SettingsError(msg)
    return meanings[text.lower()]


def _milliseconds(name: str, text: str, default: int, least: int = 1) -> int:
    """Read as the reference does: any number, and what is none falls back to the default."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 <= number <= LARGEST and math.ceil(number) >= least:
        return math.ceil(number)
    log.warning("%s takes a number of milliseconds from %d, not %r; it stays at %d", name, least, text, default)
    return default


DEFAULTS = Settings()
_at_least_0 = partial(_whole, allowed=range(LARGEST + 1))

READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "INTERLOCK_MODELS": ("models", _models),
    "INTERLOCK_DB": ("db", _db),
    "INTERLOCK_HOST": ("host", _host),
    "INTERLOCK_PORT": ("port", partial(_whole, allowed=range(65536))),
    "INTERLOCK_TOKEN": ("tokens", _tokens),
    "INTERLOCK_CORS": ("cors", _origins),
    "INTERLOCK_MAX_BODY_BYTES": ("max_body_bytes", _whole),
    "INTERLOCK_MAX_INPUT_ITEMS": ("max_input_items", _whole),
    "INTERLOCK_CAPACITY": ("capacity", partial(_whole, allowed=range(1, 257))),
    "INTERLOCK_CACHE_BYTES": ("cache_bytes", _at_least_0),
    "INTERLOCK_PREFILL_STEP": ("prefill_step", _whole),
    "INTERLOCK_STALL_SECONDS": ("stall_seconds", _whole),
    "MLX_MAX_QUEUE_DEPTH_PER_MODEL": ("queue_limit", _whole),
    "INTERLOCK_DURABLE": ("durable", partial(_word, meanings={"0": False, "1": True, "false": False, "true": True})),
    "MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS": ("write_wait_ms", partial(_milliseconds, default=DEFAULTS.write_wait_ms)),
    "MLX_POST_COMMIT_PERSIST_TIMEOUT_MS": ("persist_wait_ms", partial(_milliseconds, default=DEFAULTS.persist_wait_ms)),
    "MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": (
        "persist_hard_ms",
        partial(_milliseconds, default=DEFAULTS.persist_hard_ms, least=0),
    ),
    "MLX_HARD_TIMEOUT_MARKER_TTL_MS": (
        "marker_ttl_ms",
        partial(_milliseconds, default=DEFAULTS.marker_ttl_ms, least=0),
    ),
    "MLX_RESPONSE_RETENTION_SECONDS": ("retention_seconds", _whole),
    "INTERLOCK_MAX_CHAIN_DEPTH": ("max_chain_depth", _whole),
    "INTERLOCK_SWEEP_SECONDS": ("sweep_seconds", _whole),
    "INTERLOCK_TRACE_RETENTION_SECONDS": ("trace_retention_seconds", _at_least_0),
    "INTERLOCK_HEARTBEAT_SECONDS": ("heartbeat_seconds", _whole),
    "INTERLOCK_LOG": ("log", partial(_word, meanings={"text": "text", "json": "json"})),
    "INTERLOCK_SOCKET_SECONDS": ("socket_seconds", _whole),
    "INTERLOCK_IMAGES": ("images", partial(_word, meanings={"note": "note", "refuse": "refuse"})),
}
