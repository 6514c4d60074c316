"""Where `interlock trace` finds traces: at a running server or, where none runs, in the database."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from handlers.mapping.to_struct import FieldError
from handlers.mapping.to_trace import Page, Trace, to_page, to_trace
from handlers.mapping.to_trace_query import to_trace_query
from handlers.settings import SettingsError, from_env
from handlers.terminal.fault import Fault
from handlers.terminal.server import NoServerError, to_server

LISTED = "/interlock/exchanges"
RESPONSE = "resp_"
T = TypeVar("T")


class Asked(NamedTuple):
    """What the command line says of where to look."""

    url: str | None
    token: str | None
    db: str | None


def find(asked: Asked, known_as: str) -> Trace:
    """Find one trace, by the id of its exchange or its response."""
    known_as = _to_text(known_as)
    if known_as.startswith(RESPONSE):
        page = look_for(asked, {"response_id": known_as, "limit": "1"})
        if page.data:
            return page.data[0]
        text = f"no exchange that made {known_as!r} left a trace, or none that is still kept."
        raise Fault(text)
    return _ask(asked, f"{LISTED}/{quote(known_as, safe='')}", Trace, lambda db: _read_one(db, known_as))


def look_for(asked: Asked, picked: dict[str, str]) -> Page:
    """Read the first page of a list."""
    picked = {name: _to_text(str(value)) for name, value in picked.items()}
    return _ask(asked, f"{LISTED}?{urlencode(picked)}", Page, lambda db: _read_page(db, picked))


def _ask(asked: Asked, path: str, kind: type[T], read: Callable[[str], T]) -> T:
    if asked.db:
        return read(asked.db)
    with to_server(asked.url, asked.token) as server:
        try:
            found: T = server.get(path, kind)
        except NoServerError:
            if asked.url:
                raise
        else:
            return found
    return read(_default_db())


def _to_text(word: str) -> str:
    """Make a word of the command line, which may be any bytes, one that a server and a database can take."""
    return word.encode(errors="replace").decode()


def _read_one(db: str, exchange_id: str) -> Trace:
    row = _read(db, lambda store: store.trace(exchange_id))
    if row is None:
        text = f"exchange {exchange_id!r} left no trace in {db}, or none that is still kept."
        raise Fault(text)
    return to_trace(row)


def _read_page(db: str, picked: dict[str, str]) -> Page:
    try:
        query = to_trace_query(picked)
    except FieldError as wrong:
        text = f"invalid value for --{wrong.param}: {wrong.reason}."
        raise Fault(text) from wrong
    more = msgspec.structs.replace(query, limit=query.limit + 1)
    return to_page([to_trace(row) for row in _read(db, lambda store: store.traces(more))], query.limit)


def _read(db: str, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    from storage.errors import StoreError  # noqa: PLC0415 - DuckDB would make each command slow, and the server's fork unsafe
    from storage.store import open_store  # noqa: PLC0415

    if not Path(db).is_file():
        text = f"no server answers, and there is no database at {db}."
        raise Fault(text)
    try:
        store = open_store(db)
        try:
            return asyncio.run(ask(store))
        finally:
            store.close_now()
    except StoreError as error:
        raise Fault(str(error)) from error


def _default_db() -> str:
    from storage.opening import MEMORY  # noqa: PLC0415

    try:
        db = from_env().db
    except SettingsError as error:
        raise Fault(str(error)) from error
    if db is None or db == MEMORY:
        text = "no server answers, and INTERLOCK_DB names no file to read."
        raise Fault(text)
    return db
