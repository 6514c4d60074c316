"""A world whose time, store, model and clients do nothing but what a test lets them do."""

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

from engine.errors import DecodeError
from engine.scripted import Pause, ScriptedDecoding
from handlers.wire.items import OutputMessage
from handlers.wire.sse import DONE
from machines.exchange import FINAL
from storage.errors import ReadError, WriteError
from storage.rows import Chain, Lookup, Missing, ResponseRow
from tests.asgi import Call
from tests.doubles import NOW
from tests.sequences import laws
from tests.sequences.laws import TERMINALS, to_events
from tests.test_registry import Loadable

ENDS = tuple(f"event: {name}".encode() for name in TERMINALS)


class Loop(asyncio.SelectorEventLoop):
    """An event loop in which time stands still until a test moves it, and every turn is a test's to take."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()
        self.broken: list[dict[str, Any]] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.set_exception_handler(lambda _, context: self.broken.append(context))

    def create_task(self, *given: Any, **named: Any) -> asyncio.Task[Any]:
        task = super().create_task(*given, **named)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        self.turn(10)
        super().close()

    def time(self) -> float:
        return self.now

    def unix_time(self) -> float:
        return NOW + self.now

    def turn(self, turns: int | None = None) -> None:
        """Take some turns, or as many as there is something to do."""
        while turns is None or turns > 0:
            self.call_soon(self.stop)
            self.run_forever()
            if turns is not None:
                turns -= 1
            elif not self._ready:
                return

    @property
    def is_busy(self) -> bool:
        return bool(self._ready)

    @property
    def due(self) -> list[float]:
        """When the timers fire that are set."""
        return [timer.when() for timer in self._scheduled if not timer.cancelled()]


class Exchanges(set):
    """The exchanges under way, in the order they came, and all that ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Any] = []

    def add(self, exchange: Any) -> None:
        super().add(exchange)
        self.all.append(exchange)

    def __iter__(self) -> Iterator[Any]:
        return (exchange for exchange in self.all if exchange in self)


class Put:
    """One attempt to write a row: it may show in the store before its putter hears of it."""

    def __init__(self, row: ResponseRow, since: float, attempt: int) -> None:
        self.row = row
        self.since = since
        self.attempt = attempt
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ScriptedStore:
    """A store in memory that answers puts when a test says so, and reads too while it is slow."""

    def __init__(self, world: Any) -> None:
        self.rows: dict[str, ResponseRow] = {}
        self.puts: dict[str, Put] = {}
        self.attempts: dict[str, int] = {}
        self.reads: list[asyncio.Future[bool | None]] = []
        self._world = world

    async def put(self, row: ResponseRow) -> None:
        assert row.id not in self.puts, "a row is written by one attempt at a time"
        self.attempts[row.id] = self.attempts.get(row.id, 0) + 1
        put = self.puts[row.id] = Put(row, self._world.loop.now, self.attempts[row.id])
        await put.answer

    def answer(self, response_id: str, *, lands: bool) -> None:
        put = self.puts.pop(response_id)
        if lands:
            self.rows[response_id] = put.row
            put.answer.set_result(None)
        else:
            put.answer.set_exception(WriteError("The disk is full."))

    async def chain(self, response_id: str, now: int, limit: int = 1000) -> Lookup:
        found = self.look(response_id, now)
        if not self._world.holds_next:
            return found
        self._world.holds_next = False
        self.reads.append(self._world.loop.create_future())
        is_stale = await self.reads[-1]
        if is_stale is None:
            raise ReadError
        return found if is_stale else self.look(response_id, now)

    def look(self, response_id: str, now: float) -> Lookup:
        row = self.rows.get(response_id)
        rows = [self.rows.get(link) for link in (*row.ancestors, row.id)] if row else [None]
        alive = [row for row in rows if row and (row.expires_at or now + 1) > now]
        return Chain(alive) if alive == rows else Missing()

    async def sweep(self, now: int, trace_retention: int = 0) -> int:
        self.rows = {row.id: row for row in self.rows.values() if (row.expires_at or now) >= now}
        return 0

    def record(self, trace: Any) -> None:
        pass


async def taken_up() -> int:
    return 0


class SteppedEngine(Loadable):
    """A model that plays what it is told to, piece by piece, and notes who comes to it and who is served."""

    def __init__(self, world: Any, *, waits: bool = False) -> None:
        super().__init__(waits=waits)
        self.capacity = world.capacity
        self.arrived: list[Asked] = []
        self.prompts: list[asyncio.Future[None]] = []
        self._world = world

    @property
    def live(self) -> list[ScriptedDecoding]:
        return [decoding for decoding in self.decodings if not decoding._over.is_set()]

    async def tokenize(self, messages: Any, tools: Any = None, effort: Any = None) -> list[int]:
        tokens = await super().tokenize(messages, tools, effort)
        if self._world.holds_next:
            self._world.holds_next = False
            self.prompts.append(self._world.loop.create_future())
            await self.prompts[-1]
        asked = self._world.asked[int(messages[-1]["content"][1:])]
        self._world.heard(asked, [(message["role"], message["content"]) for message in messages])
        self.arrived.append(asked)
        return tokens

    def decode(self, *given: Any, **named: Any) -> ScriptedDecoding:
        self.scripts.append([Pause()])
        decoding = super().decode(*given, **named)
        decoding.begun = taken_up
        decoding.asked = self._world.asked[self._vocabulary_word(given[0][-1])]
        assert len(self.live) <= self._world.capacity, "no more decode together than there is room for"
        return decoding

    def is_told(self, decoding: ScriptedDecoding) -> bool:
        """Whether a decode waits to be told what to do next."""
        last = decoding._script[-1] if decoding._script else None
        return isinstance(last, Pause) and not last.resume.is_set()

    def play(self, decoding: ScriptedDecoding, *entries: Any, goes_on: bool = True) -> None:
        if self.is_told(decoding):
            decoding._script[-1].resume.set()
            decoding._script.extend([*entries, Pause()] if goes_on else entries)

    def die(self) -> None:
        self.healthy = False
        for decoding in self.live:
            decoding.end(DecodeError("The model died."))

    async def close(self) -> None:
        self._world.faults += [f"{decoding.asked} lost its model" for decoding in self.live]
        await super().close()

    def _vocabulary_word(self, token: int) -> int:
        return next(int(word[1:]) for word, known in self._vocabulary.items() if known == token)


class SlowCall(Call):
    """A client whose connection may fill up, before or just after it handed something over."""

    hands_over_first = False

    async def _take(self, chunk: bytes) -> None:
        is_leaving = self.leave_on and self.leave_on in chunk
        if not self.hands_over_first or is_leaving:
            await super()._take(chunk)
            return
        if chunk:
            self.chunks.append(chunk)
        await self.unread.acquire()


class Asked:
    """One request: what was asked, what its client saw of the answer, and the exchange behind it."""

    def __init__(self, body: dict[str, Any], previous: "Asked | None", world: Any) -> None:
        self.body = body
        self.previous = previous
        self.call = SlowCall(world.app, "POST", "/v1/responses", json.dumps(body).encode(), {})
        self.since = world.loop.now
        self.came_too_late = bool(previous and previous.is_over and world.has_expired(previous))
        self.followed_an_answer = bool(previous and previous.is_completed)
        self.exchange: Any = None
        self.has_left = self.has_stalled = self.is_judged = self.is_whole = False
        self.terminal: Any = None
        self.conversation: list[tuple[str, str]] = []
        self.wedged_at = 0.0  # when somebody was last told that its write is stuck
        self.met_given_up = False  # what it continues was vouched for by nobody while it was under way
        self.may_be_lost = False  # for its write failed when nobody vouched for it any more
        self.most_frames = math.inf
        self._read = 0

    def __repr__(self) -> str:
        return f"{self.body['input']} ({self.exchange and self.exchange.state.name}, {self.body})"

    @property
    def id(self) -> str | None:
        return getattr(self.exchange, "head", None) and self.exchange.head.id

    @property
    def is_over(self) -> bool:
        return self.exchange is not None and self.exchange.state in FINAL

    @property
    def engine(self) -> SteppedEngine:
        return self.exchange.binding.engine

    @property
    def has_passed(self) -> set[str]:
        return {move.event for move in self.exchange.trace}

    @property
    def is_completed(self) -> bool | None:
        """Whether the client saw its answer end well; None while that is open.

        One that left, or was given up, is taken to have seen what the server believes it saw.
        """
        was_given_up = self.is_over and self.exchange.event == "client_stalled"
        if self.terminal is not None and not (self.has_left or was_given_up):
            return self.terminal["status"] != "failed"
        return "terminal_sent" in self.has_passed if self.is_over else None

    @property
    def frames(self) -> int:
        return sum(chunk != DONE for chunk in self.call.chunks)

    @property
    def expires_at(self) -> float:
        own = self.exchange.expires_at
        return min(own, self.previous.expires_at) if self.previous else own

    @property
    def answer(self) -> str:
        """What its model said, as the server keeps it."""
        items = self.exchange.output.items
        return "".join(part.text for item in items if isinstance(item, OutputMessage) for part in item.content)

    def read(self) -> None:
        """Look at what came since."""
        for chunk in self.call.chunks[self._read :]:
            self._read += 1
            if self.terminal is not None:
                assert chunk == DONE, "nothing follows the terminal event"
            elif not self.body["stream"]:
                found = json.loads(chunk)
                self.terminal = found if "status" in found else {"status": "failed"}
            elif (last := chunk.rstrip(b"\n").rsplit(b"\n\n", 1)[-1]).startswith(ENDS):
                self.terminal = json.loads(last.split(b"data: ", 1)[1])["response"]

    def assert_laws(self) -> None:
        """Hold a stream that has ended to its laws."""
        if self.call.status_code != 200 or not self.body["stream"] or self.has_left:
            return
        if self.exchange.event == "client_stalled":
            return
        laws.assert_laws(to_events(self.call.text))
