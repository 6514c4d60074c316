"""Which responses a client may already name though their row has not been committed yet."""

import asyncio
from contextlib import suppress


class PendingWrites:
    """Ids from the moment their terminal frame is about to leave until their row has landed or failed."""

    def __init__(self) -> None:
        self._settled: dict[str, asyncio.Event] = {}

    def reserve(self, response_id: str) -> None:
        self._settled.setdefault(response_id, asyncio.Event())

    def release(self, response_id: str) -> None:
        """Settle the id and wake whoever waits for it; an id that is not pending is let be."""
        settled = self._settled.pop(response_id, None)
        if settled is not None:
            settled.set()

    def is_pending(self, response_id: str) -> bool:
        return response_id in self._settled

    async def wait(self, response_id: str, timeout: float) -> bool:  # noqa: ASYNC109  running out of time is an answer
        """Tell whether the id settled within `timeout` seconds; one that is not pending has."""
        settled = self._settled.get(response_id)
        if settled is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await settled.wait()
        return settled.is_set()
