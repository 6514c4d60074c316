"""One request: what it has learned so far, and what it holds."""

from collections.abc import AsyncGenerator, Mapping
from functools import cached_property, partial
from typing import Any, Literal

from msgspec import Struct
from transitions import EventData

from engine.pieces import Constraint, Decoding, Finish, Grammar
from handlers.body import Body, TextBody
from handlers.jobs import Job, Keeping
from handlers.journal import Journal
from handlers.mapping.references import to_item_id
from handlers.mapping.to_messages import Message
from handlers.mapping.to_response import STATUS, Ending, Head, to_response, to_usage
from handlers.mapping.to_row import Origin, to_history, to_row
from handlers.mapping.to_tools import Toolbox
from handlers.measured import Measured
from handlers.models import Binding, Lease, Ticket
from handlers.outbox import Outbox
from handlers.output import Output
from handlers.services import Services
from handlers.wire.events import Created, Event, InProgress, Terminal
from handlers.wire.request import CreateResponse
from handlers.wire.response import Response, Usage
from machines.driver import Driven, Move, interrupt
from machines.exchange import DURABLE_FAILURES, REFUSALS, TERMINALS
from machines.table import Failure, Refusal
from storage.rows import EventRow, Lookup, ResponseRow
from storage.store import Store


class Incoming(Struct, frozen=True, kw_only=True):
    """What arrived; `event` says how its route was found."""

    method: str
    path: str
    event: str = "route_found"
    asked: Literal["create", "talk", "count", "compact", "show", "list", "delete", "cancel"] = "create"
    owner: str = ""  # whose caches it may use
    query: Mapping[str, Any] = {}
    local: Mapping[str, list[ResponseRow]] | None = None  # the chains of a WebSocket's own responses
    facts: dict[str, Any] = {}
    body: Body | TextBody | None = None


class Exchange(Driven):
    """Follows the exchange machine. Each step adds what it learned; callbacks let go of what a state held."""

    request: CreateResponse
    binding: Binding
    head: Head
    items: list[dict[str, Any]]
    messages: list[Message]
    prompt: list[int]

    def __init__(self, services: Services, incoming: Incoming) -> None:
        super().__init__(services.table, services.new_id("ex"))
        self.services = services
        self.incoming = incoming
        self.facts: dict[str, Any] = {
            "exchange": self.id, "method": incoming.method, "path": incoming.path, **incoming.facts,
        }  # fmt: skip
        self.model: str | None = None  # the name of the one it asked for, once that is known to be served
        self.known_as: str | None = None  # the id of its response, unless that was deleted
        self.outbox = Outbox()
        self.voice: Outbox | Journal = self.outbox  # what the response is told to
        self.job: Job | None = None
        self.body: Any = None  # of a reply that is no response
        self.told: AsyncGenerator[EventRow] | None = None
        self.measured = Measured()
        self.output = Output(self.new_item_id, self.measured)
        self.toolbox = Toolbox([], {})
        self.constraint: Constraint | None = None
        self.grammar: Grammar | None = None
        self.unseen: list[str] = []
        self.chain: list[ResponseRow] = []
        self.history: list[Message] = []
        self.finish: Finish | None = None
        self.decoding: Decoding | None = None
        self.lease: Lease | None = None
        self.ticket: Ticket | None = None
        self.probed: Lookup | None = None
        self.expires_at = 0  # Unix seconds, known once the answer has ended
        self._reserved: str | None = None

    async def say(self, event: Event) -> None:
        """Send an event to the client, waiting while it is too far behind."""
        await self.voice.put(event)

    async def beat(self) -> None:
        """Open the stream, or say again that the response is being made."""
        if self.job is not None:
            await self.job.beat()
            return
        opening = to_response(self.head, Ending())
        if self.voice.count == 0:
            await self.say(Created(opening))
        await self.say(InProgress(opening))

    async def open(self) -> None:
        """Say that the model is at work, unless the client has heard so."""
        if self.voice.count == 0:
            await self.beat()

    async def deliver(self, terminal: Terminal) -> None:
        """Send the terminal event and wait until it has left, or until that of a job is stored."""
        if self.job is not None:
            await self.job.end(terminal)
        else:
            await self.outbox.deliver(terminal)

    async def go_on_alone(self, store: Store) -> None:
        """Become a job: from now on the store listens, and whoever asks it. Raises WriteError and TimeoutError."""
        jobs, patience = self.services.jobs, self.services.settings.persist_wait_ms / 1000
        keeping = Keeping(
            store=store,
            expiry=lambda: self.expiry,
            patience=patience,
            forget=partial(jobs.pop, self.head.id, None),
            heard=self.services.job_heard,
        )
        job = Job(self.head, self.items, keeping)
        jobs[job.id] = self  # before the store has it, or it would be taken for one that a crash left behind
        await job.begin()
        self.job, self.voice = job, job.journal
        self.outbox.close()

    async def speak(self) -> None:
        """Send what the output has to say; whatever interrupts it, nothing is lost or said twice."""
        while self.output.said:
            await self.say(self.output.said[0])
            self.output.said.popleft()

    def new_item_id(self, prefix: str) -> str:
        """Make the id of the next output item, or of a call whose model gave it none."""
        if prefix == "call":
            return self.services.new_id(prefix)
        return to_item_id(prefix, self.head.id, len(self.output.items))

    def leave(self) -> None:
        """Take note that the client has gone; once its terminal event left, that changes nothing."""
        if self.job is None and not self.outbox.is_delivered:
            interrupt(self, "client_gone")

    @property
    def terminal(self) -> str:
        """The terminal event that the way the answer ended calls for."""
        return next(TERMINALS[move.event] for move in reversed(self.trace) if move.event in TERMINALS)

    @cached_property
    def response(self) -> Response:
        """The response as it ended, made once: its row and its terminal event say the same."""
        ending = Ending(
            status=STATUS[self.terminal],
            completed_at=int(self.services.clock()),
            output=self.output.items,
            usage=self.usage,
        )
        return to_response(self.head, ending)

    @property
    def usage(self) -> Usage | None:
        """What the model read and wrote, known once it has said so."""
        return to_usage(self.finish) if self.finish else None

    @property
    def wants_stream(self) -> bool:
        """Whether the client asked for server-sent events."""
        return bool(self.request.stream)

    @property
    def refusal(self) -> tuple[Refusal, str | None, str]:
        """The row that refused this exchange, its param, and its sentence."""
        row = REFUSALS[self.event]
        facts = {**self.facts, "retry_after": row.retry_after}
        return row, row.param and row.param.format(**facts), row.message.format(**facts)

    @property
    def failure(self) -> tuple[Failure, str]:
        """The row that failed this exchange, and its sentence."""
        row = DURABLE_FAILURES[self.event]  # those of the other table are among them
        return row, row.message.format(**self.facts)

    @property
    def expiry(self) -> int:
        """When a response that is stored now expires, in Unix seconds."""
        asked = self.request.metadata
        seconds = asked.get("retention_seconds") if isinstance(asked, dict) else None
        return int(self.services.clock()) + (seconds or self.services.settings.retention_seconds)

    def moved(self, move: Move) -> None:
        self.services.heard(self, move)

    def stop_decoding(self, _: EventData) -> None:
        if self.decoding is not None:
            self.decoding.cancel()

    def keep_warm(self, _: EventData) -> None:
        if self.decoding is not None:
            self.decoding.keep()

    def leave_slot(self, _: EventData) -> None:
        if self.ticket is not None:
            self.ticket.leave()

    def release_lease(self, _: EventData) -> None:
        if self.lease is not None:
            self.lease.release()

    def reserve_row(self, _: EventData) -> None:
        if self.head.store:
            self.expires_at = self.expiry
            ends = [row.expires_at for row in self.chain if row.expires_at is not None]
            self._reserved = self.head.id
            self.services.writes.reserve(self.head.id, min([self.expires_at, *ends]))

    def hold_row(self, _: EventData) -> None:
        store = self.services.store
        if self._reserved is not None and store is not None:
            self.services.writes.provisional.hold(self._reserved, store.withdraw)

    def keep_row(self, _: EventData) -> None:
        if self._reserved is not None:
            self.services.writes.provisional.keep(self._reserved)

    def release_row(self, _: EventData) -> None:
        if self._reserved is not None:
            self.services.writes.release(self._reserved)

    @property
    def is_prewarm(self) -> bool:
        """Whether the prompt is only to be taken up, for a continuation that will come over the same WebSocket."""
        return self.incoming.local is not None and self.request.generate is False

    @property
    def window(self) -> list[dict[str, Any]]:
        """All items of the conversation, those of the chain and the new ones."""
        return [*to_history(self.chain), *self.items]

    def to_row(self) -> ResponseRow:
        """Make the row of the response that has ended."""
        origin = Origin(self.binding.instance, self.services.boot_id, not self.is_prewarm)
        return to_row(self.response, self.items, self.chain, origin, expires_at=self.expires_at or self.expiry)
