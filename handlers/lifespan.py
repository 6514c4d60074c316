"""What runs from the server's start to its end: loading, looking after the models and the store, letting go."""

import asyncio
import logging
from typing import Any

from handlers.recovery import recover
from handlers.services import Services
from machines.binding import State
from storage.errors import StoreError
from storage.store import Store

log = logging.getLogger("interlock.app")

LAST_WRITES_SECONDS = 2.0
LAST_DELETES_SECONDS = 2.0  # for rows that nobody is to find later


class Lifespan:
    """Loads the models in the background at start, so that health can say so; lets go of everything at the end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._chores: list[asyncio.Task[None]] = []

    async def process_startup(self, _scope: Any, _event: Any) -> None:
        task = asyncio.create_task(self._load(), name="load")
        self._services.running.add(task)
        task.add_done_callback(self._services.running.discard)
        self._chores.append(asyncio.create_task(self._watch(), name="watch"))
        if self._services.store is not None:
            await recover(self._services, self._services.store)
            self._chores.append(asyncio.create_task(self._sweep(self._services.store), name="sweep"))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._services.settings.watch_seconds)
            self._services.models.watch()

    async def _sweep(self, store: Store) -> None:
        settings = self._services.settings
        while True:
            await asyncio.sleep(settings.sweep_seconds)
            self._services.writes.sweep()
            await self._end_jobs(store)
            try:
                await store.sweep(int(self._services.clock()), settings.trace_retention_seconds)
            except StoreError as error:
                log.warning("expired rows could not be deleted: %s", error, exc_info=error.__cause__)

    async def _end_jobs(self, store: Store) -> None:
        for exchange in list(self._services.jobs.values()):
            if exchange.job is not None and exchange.job.is_final:
                await exchange.job.keep()
        await recover(self._services, store)

    async def _load(self) -> None:
        models = self._services.models
        models.start(self._services.announce)
        await models.settled()
        if models and all(binding.look() is State.BROKEN for binding in models.values()):
            self._services.give_up()

    async def _settle(self) -> None:
        """See what was answered written, and try once more what could not be; what hangs is left behind."""
        services = self._services
        services.is_stopping = True
        services.writes.sweep()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_WRITES_SECONDS
        # an exchange that ends may start a write
        for tasks in (services.running, services.writes.running):
            if tasks:
                await asyncio.wait(set(tasks), timeout=max(0, deadline - loop.time()))
        if lost := services.writes.held:
            log.error("the server stops without %d rows that could not be written in time", lost)

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """See to what is still to be written, then let go of the models and the store. May be called twice."""
        for chore in self._chores:
            chore.cancel()
        await self._settle()
        await self._services.models.close()
        await self._services.writes.provisional.close(LAST_DELETES_SECONDS)
        if self._services.store is not None:
            await self._services.store.close()
