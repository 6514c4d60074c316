"""Requests, clients, models, writes and time, in any order: what holds throughout, and that nothing is left over."""

import asyncio
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import DecodeError, LoadError
from engine.pieces import Reasoning, Text
from engine.scripted import call, stop
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import Settings
from handlers.writes import Writes
from machines.binding import State as ModelState
from machines.exchange import State
from machines.write import State as WriteState
from storage.rows import Chain
from tests.doubles import counting_ids
from tests.together import Asked, Exchanges, Loop, ScriptedStore, SteppedEngine

pytestmark = pytest.mark.timeout(600)

PIECES: dict[str, tuple[list[Any], bool]] = {  # what a decode does next, and whether it goes on
    "text": ([Text("w ")], True),
    "reasoning": ([Reasoning("r ")], True),
    "stop": (stop(), False),
    "call": (call("look", {"at": "herons"}), True),
    "length": (stop("length"), False),
    "error": (stop("error"), False),
    "fail": ([DecodeError("broken")], False),
    "exhaust": ([], False),
}
END = b'"status":"completed","incomplete_details"'  # of an answer: in its terminal event, and in no other
CHANGES = ["register", "replace", "replace", "unregister", "die"]
ENDING = {State.EMITTING, State.FAILING, State.PERSISTING}
INSIDE = {State.QUEUED, State.HELD, State.DISPATCHING}
LEAVING = {ModelState.DRAINING, ModelState.RETIRED}


class Together(RuleBasedStateMachine):
    """One server."""

    turns = st.sampled_from([None, None, 0, 1, 2, 3, 5])
    names = st.sampled_from("ab")
    rarely = st.sampled_from([False, False, False, True])
    bodies = st.fixed_dictionaries(
        {
            "stream": st.booleans(),
            "store": st.sampled_from([True, True, None, False]),
            "metadata": st.sampled_from([None, None, {"retention_seconds": 60}]),
        }
    )

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.store = ScriptedStore(self)
        self.exchanges = Exchanges()
        self.asked: list[Asked] = []
        self.engines: list[SteppedEngine] = []
        self.faults: list[str] = []
        self.changes = 0
        self.stops_at = math.inf
        self.is_stopping = self.holds_next = False

    @initialize(
        capacity=st.sampled_from([1, 1, 2]),
        limit=st.sampled_from([1, 3]),
        hard=st.sampled_from([10, 10, 0]),
        ttl=st.sampled_from([40, 40, 0]),
    )
    def open(self, capacity: int, limit: int, hard: int, ttl: int) -> None:
        self.capacity, self.limit, self.hard, self.ttl = capacity, limit, hard, ttl
        clock = self.loop.unix_time
        self.models = Registry(lambda _: self.new(waits=True), queue_limit=limit, clock=clock)
        self.writes = Writes(hard, ttl, clock)
        self.services = Services(
            settings=Settings(queue_limit=limit, retention_seconds=200, heartbeat_seconds=4), models=self.models,
            store=self.store, writes=self.writes, exchanges=self.exchanges, clock=clock, new_id=counting_ids(),
        )  # fmt: skip
        self.app = create_app(self.services)
        for name in "ab":
            self.do(partial(self.register, name, None))
            self.send({"model": name, "stream": True, "store": True})
        self.catch_up()

    def new(self, *, waits: bool = False) -> SteppedEngine:
        self.engines.append(SteppedEngine(self, waits=waits))
        return self.engines[-1]

    def do(self, work: Any, turns: int | None = None) -> None:
        """Do something inside the loop, then let it take some turns, or all."""

        async def done() -> None:
            work()

        task = self.loop.create_task(done())
        self.loop.turn(1)
        task.result()
        self.loop.turn(turns)
        self.look()

    # What may happen

    @rule(data=st.data(), body=bodies, leaves=rarely, turns=turns)
    def ask(self, data, body, leaves, turns):
        name = data.draw(st.sampled_from([*self.ready * 3, *self.models, "a", "c"]))
        self.send({**body, "model": name}, None, leaves, turns)

    @precondition(lambda self: self.completed)
    @rule(data=st.data(), body=bodies, leaves=rarely, turns=turns)
    def continue_from(self, data, body, leaves, turns):
        unsettled = [asked for asked in self.completed if asked.id not in self.store.rows]
        previous = data.draw(st.sampled_from([*unsettled * 3, *self.completed * 2, *self.known]))
        name = data.draw(st.sampled_from([*[previous.body["model"]] * 3, *self.models]))
        self.send({**body, "model": name, "previous_response_id": previous.id}, previous, leaves, turns)

    def send(self, body, previous=None, leaves=None, turns=None):
        def sends():
            asked = Asked({"input": f"q{len(self.asked)}", **body}, previous, self)
            asked.call.leave_on = END if leaves else None
            self.asked.append(asked)

        self.do(sends, turns)

    @precondition(lambda self: self.told)
    @rule(data=st.data(), happens=st.sampled_from([*PIECES, "text", "text", "reasoning", "stop"]), turns=turns)
    def step(self, data, happens, turns):
        engine, decoding = data.draw(st.sampled_from(self.told))
        entries, goes_on = PIECES[happens]
        self.do(lambda: engine.play(decoding, *entries, goes_on=goes_on), turns)

    @precondition(lambda self: self.told)
    @rule(data=st.data(), length=st.sampled_from([1, 1, 1, 50]), turns=turns)
    def answer(self, data, length, turns):
        engine, decoding = data.draw(st.sampled_from(self.told))
        self.do(lambda: engine.play(decoding, *[Text("w ")] * length, *stop(), goes_on=False), turns)

    @rule()
    def catch_up(self):
        self.do(self.let_go)

    @precondition(lambda self: self.calling)
    @rule(data=st.data(), happens=st.sampled_from(["leave", "stall", "fill_up", "read_on", "read_on"]), turns=turns)
    def behave(self, data, happens, turns):
        asked = data.draw(st.sampled_from(self.calling))
        self.do(lambda: getattr(self, happens)(asked), turns)

    def leave(self, asked: Asked) -> None:
        asked.has_left = True
        asked.call.leave()

    def fill_up(self, asked: Asked) -> None:
        asked.call.hands_over_first = True
        self.stall(asked)

    def stall(self, asked: Asked) -> None:
        asked.has_stalled = True
        if not asked.call.unread.locked():
            asked.call.unread = asyncio.Semaphore(0)

    def read_on(self, asked: Asked) -> None:
        waiting, asked.call.unread = asked.call.unread, asyncio.Semaphore(1_000_000)
        waiting.release()

    @precondition(lambda self: self.store.puts)
    @rule(data=st.data(), happens=st.sampled_from(["land", "land", "show", "fail"]), turns=turns)
    def write(self, data, happens, turns):
        response_id = data.draw(st.sampled_from(sorted(self.store.puts)))
        self.do(lambda: getattr(self, happens)(response_id), turns)

    def land(self, response_id: str) -> None:
        self.store.answer(response_id, lands=True)

    def show(self, response_id: str) -> None:
        self.store.rows[response_id] = self.store.puts[response_id].row

    def fail(self, response_id: str) -> None:
        if response_id not in self.store.rows:
            asked = next(asked for asked in self.asked if asked.id == response_id)
            asked.may_be_lost |= self.is_given_up(asked)
            self.store.answer(response_id, lands=False)

    @rule()
    def hold_what_is_next(self):
        self.holds_next = True

    @precondition(lambda self: self.held)
    @rule(data=st.data(), found=st.sampled_from([True, False, None]), turns=turns)
    def let_on(self, data, found, turns):
        future = data.draw(st.sampled_from(self.held))
        self.do(lambda: future.done() or future.set_result(found), turns)

    @rule(seconds=st.sampled_from([1.0, 2.0, 2.0, 5.0, 5.0, 15.0, 31.0, 41.0, 61.0]))
    def move(self, seconds):
        self.loop.turn()  # time passes only where there is nothing else to do
        end = self.loop.now + seconds
        while due := [when for when in self.loop.due if when <= end]:
            self.loop.now = max(self.loop.now, min(due))
            self.loop.turn()
            self.look()
        self.loop.now = end
        self.loop.turn()
        self.look()

    @rule(turns=turns)
    def sweep(self, turns):
        self.do(self.sweep_both, turns)

    def sweep_both(self) -> None:
        self.writes.sweep()
        now = int(self.loop.unix_time())
        self.store.rows = {row.id: row for row in self.store.rows.values() if row.expires_at >= now}

    @precondition(lambda self: self.changes * 3 < len(self.asked))
    @rule(data=st.data(), name=names, happens=st.sampled_from(CHANGES), turns=turns)
    def change_models(self, data, name, happens, turns):
        self.changes += 1
        engines = [engine for engine in self.engines if engine.may_load.is_set()]
        given = data.draw(st.sampled_from([None, *engines, *self.draining * 3]))
        self.do(lambda: getattr(self, happens)(name, given), turns)

    def register(self, name: str, engine: SteppedEngine | None) -> None:
        binding = self.models.register(name, engine or self.new())
        if binding.state is ModelState.LOADING:
            self.models._spawn(binding.load())

    def replace(self, name: str, _: Any) -> None:
        if not self.models.under_way(name):
            self.models.replace(name, self.new(waits=True))

    def unregister(self, name: str, _: Any) -> None:
        self.models.unregister(name)

    def die(self, _: Any, engine: SteppedEngine | None) -> None:
        if engine is not None:
            engine.die()

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), fails=rarely, turns=turns)
    def finish_load(self, data, fails, turns):
        engine = data.draw(st.sampled_from(self.loading))
        self.do(lambda: engine.finish(LoadError("No.") if fails else None), turns)

    @precondition(lambda self: len(self.asked) > 8 and not self.is_stopping)
    @rule(seconds=st.sampled_from([0, 7]), turns=turns)
    def drain(self, seconds, turns):
        self.is_stopping = True
        self.stops_at = self.loop.now + seconds
        self.do(lambda: self.app.begin_drain(seconds), turns)

    @property
    def ready(self) -> list[str]:
        return [name for name, binding in self.models.items() if binding.look() is ModelState.READY]

    @property
    def completed(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.id and asked.is_completed and asked.body["store"] is not False]

    @property
    def draining(self) -> list[SteppedEngine]:
        return [binding.engine for binding in self.models._bindings.values() if binding.state in LEAVING]

    @property
    def known(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.id]

    @property
    def calling(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.call.task.done()]

    @property
    def told(self) -> list[tuple[SteppedEngine, Any]]:
        return [(engine, decoding) for engine in self.engines for decoding in engine.live if engine.is_told(decoding)]

    @property
    def held(self) -> list[asyncio.Future]:
        prompts = [prompt for engine in self.engines for prompt in engine.prompts]
        return [future for future in (*self.store.reads, *prompts) if not future.done()]

    @property
    def loading(self) -> list[SteppedEngine]:
        return [engine for engine in self.engines if not engine.may_load.is_set()]

    # What must hold

    def look(self) -> None:
        """Read what came, and judge each exchange once it has ended."""
        by_input = {exchange.request.input: exchange for exchange in self.exchanges.all if hasattr(exchange, "request")}
        for asked in self.asked:
            asked.has_left |= asked.call._gone.is_set()
            asked.exchange = by_input.get(asked.body["input"])
            asked.read()
            if asked.previous is not None and not asked.is_judged:
                asked.met_given_up |= self.is_given_up(asked.previous)
            if asked.is_over and not asked.is_judged:
                asked.is_judged = True
                self.judge(asked)
            assert asked.frames <= asked.most_frames, "nothing is sent for an exchange that was given up"
            if asked.is_judged and asked.call.task.done() and not asked.is_whole:
                asked.is_whole = True
                asked.assert_laws()

    def judge(self, asked: Asked) -> None:
        exchange = asked.exchange
        assert exchange.event != "crashed"
        assert exchange.event != "client_gone" or asked.has_left
        assert exchange.event != "client_stalled" or asked.has_stalled
        assert exchange.event != "server_stopping" or self.is_stopping
        assert exchange.event != "queue_full" or exchange.facts["waiting"] == self.limit
        if asked.terminal is None and not asked.has_left:
            assert "terminal_sent" not in asked.has_passed, "what counts as delivered has arrived"
        if exchange.state is State.ABANDONED:
            asked.most_frames = asked.frames + 1  # what is on its way may still arrive
        if asked.previous is not None:
            self.judge_continuation(asked, asked.previous)

    def heard(self, asked: Asked, conversation: list[tuple[str, str]]) -> None:
        """Take note of what a model was told, which is the whole chain."""
        asked.conversation = conversation
        before, previous = [], asked.previous
        if previous is not None:
            before = [*previous.conversation, ("assistant", previous.answer)]
        if conversation != [*before, ("user", asked.body["input"])]:
            self.faults.append(f"{asked} was told {conversation}")

    def judge_continuation(self, asked: Asked, previous: Asked) -> None:
        event = asked.exchange.event
        if event == "write_wedged":
            previous.wedged_at = max(previous.wedged_at, asked.since)
        if "chain_resolved" in asked.has_passed:
            assert previous.is_completed is not False, "a failed response is never continued"
            assert previous.body["store"] is not False
            assert not asked.came_too_late
            assert asked.engine is previous.engine
        if event in {"chain_unknown", "chain_expired"}:
            is_due = asked.followed_an_answer and self.is_continuable(previous) and not asked.met_given_up
            assert not is_due, f"{previous} is stored, so {asked} must not meet a 404"
        if asked.came_too_late:
            assert event not in {"write_wedged", "write_unsettled"}, "what has expired is not vouched for"
        if event == "instance_changed":
            assert asked.exchange.binding is not previous.exchange.binding

    def is_continuable(self, asked: Asked) -> bool:
        is_stored = bool(asked.is_completed) and asked.body["store"] is not False
        return is_stored and not (self.has_expired(asked) or self.is_given_up(asked) or asked.may_be_lost)

    def has_expired(self, asked: Asked) -> bool:
        return asked.expires_at <= int(self.loop.unix_time())

    def is_given_up(self, asked: Asked) -> bool:
        """Whether the marker of a stuck write may have died: nobody asked for it in its time."""
        put = self.store.puts.get(asked.id)
        if put is None or not self.hard:
            return False
        return self.loop.now >= max(put.since + self.hard, asked.wedged_at) + self.ttl

    @invariant()
    def nothing_broke(self):
        assert self.faults == []
        assert self.loop.broken == []

    @invariant()
    def places_are_taken_in_order_and_by_those_who_are_there(self):
        for binding in {exchange.binding for exchange in self.exchanges.all if hasattr(exchange, "binding")}:
            arrived = [
                asked for asked in binding.engine.arrived if asked.exchange and asked.exchange.binding is binding
            ]
            inside = [asked for asked in arrived if asked.exchange.state in INSIDE]
            running = [asked for asked in inside if asked.exchange.ticket.is_running]
            assert running == inside[: self.capacity]
            assert (binding.slots.running, binding.slots.waiting) == (len(running), len(inside) - len(running))
            decoding = [live.asked for live in binding.engine.live if live.asked.exchange.binding is binding]
            assert set(decoding) <= set(running)

    @invariant()
    def a_model_is_leased_by_the_requests_that_use_it_and_by_no_other(self):
        bound = [exchange for exchange in self.exchanges.all if hasattr(exchange, "binding")]
        using = [exchange for exchange in bound if exchange in self.exchanges]
        for binding in {exchange.binding for exchange in bound}:
            assert binding.leases == sum(exchange.binding is binding for exchange in using)

    @invariant()
    def a_model_is_retained_by_the_writes_that_are_not_stuck_and_its_id_by_those_that_are(self):
        if self.loop.is_busy:
            return
        patience = self.hard or self.services.settings.persist_wait_ms / 1000
        for binding in {asked.exchange.binding for asked in self.known}:
            puts = [self.store.puts.get(asked.id) for asked in self.known if asked.exchange.binding is binding]
            stuck = [self.loop.now >= put.since + patience for put in puts if put is not None and put.attempt == 1]
            assert (binding.retains, binding.tombstones) == (stuck.count(False), stuck.count(True))

    @invariant()
    def a_model_is_gone_once_nothing_holds_it_and_not_before(self):
        for binding in {asked.exchange.binding for asked in self.known}:
            names = sum(bound is binding for bound in self.models.values())
            is_held = names or binding.leases or binding.retains or binding.tombstones
            assert (binding.state is ModelState.GONE) is not bool(is_held)

    @invariant()
    def nobody_waits_for_what_has_ended(self):
        if self.loop.is_busy:
            return
        for asked in self.known:
            if asked.exchange.state is State.PERSISTING:
                assert asked.id in self.store.puts
            if self.loop.now >= self.stops_at:
                assert asked.is_over or asked.exchange.state in ENDING

    @invariant()
    def an_id_is_reserved_only_while_its_terminal_event_leaves(self):
        sending = {exchange.head.id for exchange in self.exchanges if exchange.state is State.EMITTING}
        reserved = {write.id for write in self.writes.known.values() if write.state is WriteState.RESERVED}
        assert reserved <= sending

    # How it ends

    def teardown(self) -> None:
        try:
            if hasattr(self, "services"):
                self.let_everything_end()
                self.nothing_is_held()
                self.what_was_completed_is_there_and_nothing_else()
        finally:
            self.loop.close()

    def let_everything_end(self) -> None:
        self.holds_next = False
        for _ in range(100):
            self.do(self.let_go)
            if not (self.exchanges or self.store.puts or self.writes.failed):
                break
            self.move(1.0)
        self.do(lambda: [engine.finish() for engine in self.engines])

    def let_go(self) -> None:
        for asked in self.calling:
            self.read_on(asked)
        for engine, decoding in self.told:
            engine.play(decoding, *stop(), goes_on=False)
        for future in self.held:
            future.set_result(False)
        for response_id in list(self.store.puts):
            self.land(response_id)
        self.writes.sweep()

    def nothing_is_held(self) -> None:
        self.nothing_broke()
        self.places_are_taken_in_order_and_by_those_who_are_there()
        assert not self.exchanges
        assert not [asked for asked in self.asked if not asked.call.task.done()]
        held = [self.writes.known, self.writes.markers, self.writes.failed, self.writes.running]
        assert not any(held)
        for binding in {exchange.binding for exchange in self.exchanges.all if hasattr(exchange, "binding")}:
            assert (binding.leases, binding.retains, binding.tombstones) == (0, 0, 0)
            assert (binding.slots.running, binding.slots.waiting) == (0, 0)
        assert {binding.engine for binding in self.models._bindings.values()} == {
            binding.engine for binding in self.models.values()
        }
        assert not self.loop.tasks
        assert len(self.loop.due) <= self.is_stopping

    def what_was_completed_is_there_and_nothing_else(self) -> None:
        for asked in self.asked:
            if asked.id and self.is_continuable(asked):
                assert isinstance(self.store.look(asked.id, self.loop.unix_time()), Chain), asked
            elif asked.id and not asked.is_completed:
                assert asked.id not in self.store.rows, asked


TestTogether = Together.TestCase
TestTogether.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, report_multiple_bugs=False, derandomize=True
)
