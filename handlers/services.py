"""What the steps of an exchange may use; made once, passed in, never imported."""

import asyncio
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from handlers.registry import Registry
from handlers.settings import Settings
from handlers.writes import Writes
from machines.driver import Driven, Move
from machines.exchange import DURABLE, EXCHANGE
from machines.table import Table
from storage.store import Store


def new_id(prefix: str) -> str:
    """Make an id such as `resp_` and 32 hexadecimal digits."""
    return f"{prefix}_{os.urandom(16).hex()}"


class Services(Struct, kw_only=True):
    """What is shared by all requests of one server process.

    `table` is what every request follows. `boot_id` tells processes apart; `clock` gives Unix seconds; `announce` hears
    of each model that is ready, `give_up` that none could be loaded, `heard` of each move of an exchange, and
    `job_heard` of each of a background response.
    """

    settings: Settings
    models: Registry
    store: Store | None
    writes: Writes = field(default_factory=Writes)
    sockets: set[Any] = field(default_factory=set)
    jobs: dict[str, Any] = field(default_factory=dict)  # background exchanges under way, by response id
    running: set[asyncio.Task[None]] = field(default_factory=set)
    exchanges: set[Driven] = field(default_factory=set)
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    clock: Callable[[], float] = time.time
    new_id: Callable[[str], str] = new_id
    announce: Callable[[str], None] = lambda _: None
    give_up: Callable[[], None] = lambda: None
    heard: Callable[[Any, Move], None] = lambda _, __: None
    job_heard: Callable[[Driven, Move], None] = lambda _, __: None
    is_stopping: bool = False
    table: Table = EXCHANGE

    @property
    def is_tracing(self) -> bool:
        """Whether the traces of exchanges are kept once they have ended."""
        return self.store is not None and self.settings.trace_retention_seconds > 0

    def __post_init__(self) -> None:
        if self.settings.durable:
            self.table = DURABLE
