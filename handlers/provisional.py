"""The rows written before their terminal event has left: out of sight until it has, deleted if it never does."""

import asyncio
from collections.abc import Awaitable, Callable

from transitions import EventData

from handlers.timers import CallLater, Waiters
from machines.driver import Driven, Move, drive, fire
from machines.provisional import MACHINE, PROVISIONAL, State
from storage.errors import WriteError

Delete = Callable[[str], Awaitable[object]]


class ProvisionalRow(Driven):
    """Follows the provisional machine for one row; its steps run once it is withdrawn."""

    state: State

    def __init__(self, rows: "ProvisionalRows", response_id: str, delete: Delete) -> None:
        super().__init__(PROVISIONAL, response_id)
        self.rows = rows
        self.delete = delete
        self.waiters = Waiters(rows.call_later)
        self.swept = asyncio.Event()

    def moved(self, move: Move) -> None:
        self.rows.heard(move)

    def wake(self, _: EventData) -> None:
        self.waiters.wake()

    def forget(self, _: EventData) -> None:
        del self.rows.known[self.id]


class ProvisionalRows:
    """Each such row by its id, from its reservation until it is kept or deleted.

    `attempts` gives what may still write a row, and `give_up` has a row that could not be written not tried again.
    """

    def __init__(
        self,
        attempts: Callable[[str], list[asyncio.Future[None]]],
        give_up: Callable[[str], object],
        call_later: CallLater,
    ) -> None:
        self.attempts = attempts
        self.give_up = give_up
        self.call_later = call_later
        self.heard: Callable[[Move], None] = lambda _: None
        self.known: dict[str, ProvisionalRow] = {}
        self.running: set[asyncio.Task[None]] = set()

    def hold(self, response_id: str, delete: Delete) -> None:
        """Let nobody read the row from now on, whenever it lands."""
        self.known[response_id] = ProvisionalRow(self, response_id, delete)

    def keep(self, response_id: str) -> None:
        """Show the row, for its terminal event has left; nothing happens if it is not held."""
        if self.is_undecided(response_id):
            fire(MACHINE, self.known[response_id], "terminal_delivered")

    def withdraw(self, response_id: str) -> bool:
        """Have the row deleted, for its terminal event never left; False, and nothing happens, if it is not held."""
        if not self.is_undecided(response_id):
            return False
        row = self.known[response_id]
        fire(MACHINE, row, "terminal_undelivered")
        task = asyncio.create_task(drive(row, STEPS, EVENT_FOR), name=f"withdraw {response_id}")
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return True

    def hides(self, response_id: str) -> bool:
        """Whether the row must not be read, though the store may have it."""
        return response_id in self.known

    def is_undecided(self, response_id: str) -> bool:
        """Whether the terminal event of the row may still leave."""
        row = self.known.get(response_id)
        return row is not None and row.state is State.PROVISIONAL

    async def decided(self, response_id: str, seconds: float) -> bool:
        """Wait until the row is shown or withdrawn; False if that takes longer than `seconds`."""
        if self.is_undecided(response_id):
            await self.known[response_id].waiters.wait(seconds)
        return not self.is_undecided(response_id)

    def sweep(self) -> None:
        """Try again to delete what could not be deleted."""
        for row in self.known.values():
            row.swept.set()

    async def close(self, seconds: float) -> None:
        """Wait for what is to be deleted, up to `seconds`, and leave the rest behind."""
        self.sweep()
        if self.running:
            _, late = await asyncio.wait(self.running, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def end_write(row: ProvisionalRow) -> str:
    """Wait until nothing can write the row any more."""
    while attempts := row.rows.attempts(row.id):
        await asyncio.wait(attempts)
    row.rows.give_up(row.id)
    return "write_ended"


async def delete(row: ProvisionalRow) -> str:
    """Delete the row, if it landed."""
    await row.delete(row.id)
    return "row_deleted"


async def await_sweep(row: ProvisionalRow) -> str:
    """Wait until it is time to try again."""
    row.swept.clear()
    await row.swept.wait()
    return "delete_retried"


STEPS = {State.WITHDRAWN: end_write, State.DELETING: delete, State.UNDELETED: await_sweep}
EVENT_FOR: dict[type[Exception], str] = {WriteError: "delete_failed"}
