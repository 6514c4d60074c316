"""The binding machine, row by row and in any order, and the places of a model."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from transitions import MachineError

from engine.errors import LoadError
from handlers.models import Slots
from handlers.registry import Registry
from machines.binding import BINDING, MACHINE, State
from machines.driver import fire
from tests.doubles import NOW
from tests.tables import targets
from tests.test_registry import Loadable


@pytest.fixture
async def models():
    registry = Registry(lambda _: Loadable(), clock=lambda: NOW)
    yield registry
    await registry.close()


async def _loading(models):
    return models.register("a", Loadable())


async def _ready(models):
    binding = await _loading(models)
    await binding.load()
    return binding


async def _broken(models):
    engine = Loadable()
    engine.finish(LoadError("No."))
    binding = models.register("a", engine)
    await binding.load()
    return binding


async def _draining(models):
    binding = await _ready(models)
    binding.test_lease = binding.lease()
    models.unregister("a")
    return binding


async def _retired(models):
    binding = await _draining(models)
    binding.test_retain = binding.retain()
    binding.test_retain.release(wedged=True)
    binding.test_lease.release()
    return binding


async def _load(_, binding):
    await binding.load()


async def _fail(_, binding):
    binding.engine.finish(LoadError("No."))
    await binding.load()


async def _die(models, binding):
    binding.engine.healthy = False
    assert models.lease("a") is None


async def _reload(models, binding):
    # only what an engine's death broke is loaded again without an operator
    binding.event = "engine_died"
    models.watch()


async def _unname(models, _):
    models.unregister("a")


async def _name(models, binding):
    models.register("b", binding.engine)


async def _release(_, binding):
    binding.test_lease.release()


async def _wedge(_, binding):
    binding.retain().release(wedged=True)
    binding.test_lease.release()


async def _settle(_, binding):
    binding.test_retain.release()


async def _close(models, _):
    await models.close()


STATES = {
    State.LOADING: _loading, State.READY: _ready, State.BROKEN: _broken, State.DRAINING: _draining,
    State.RETIRED: _retired,
}  # fmt: skip
EVENTS = {
    "model_loaded": _load, "load_failed": _fail, "engine_died": _die, "reload_started": _reload,
    "last_name_lost": _unname, "named_again": _name,
    "last_holder_left": _release, "wedged_write_left": _wedge, "last_write_settled": _settle, "server_closed": _close,
}  # fmt: skip
TARGETS = targets(BINDING)


@pytest.mark.parametrize(("event", "state"), TARGETS)
async def test_a_row_is_fired(models, event, state):
    binding = await STATES[state](models)
    assert binding.state is state
    seen = len(binding.trace)

    await EVENTS[event](models, binding)

    assert binding.trace[seen][:3] == (event, state, TARGETS[event, state])


@pytest.mark.parametrize("state", State)
async def test_what_no_row_allows_changes_nothing(models, state):
    binding = await _ready(models)
    binding.state = state

    for event in {event for event, _ in BINDING.edges} - {event for event, left in BINDING.edges if left is state}:
        with pytest.raises(MachineError):
            fire(MACHINE, binding, event)

    assert binding.state is state
    binding.state = State.READY


def test_every_state_but_gone_has_a_way_out():
    assert {state for _, state in BINDING.edges} == set(State) - {State.GONE}
    assert BINDING.final == {State.GONE}


@pytest.mark.parametrize(
    ("state", "closes"),
    [(State.LOADING, 1), (State.READY, 1), (State.BROKEN, 1), (State.DRAINING, 1), (State.RETIRED, 1)],
)
async def test_an_engine_is_closed_once_however_its_binding_ends(models, state, closes):
    binding = await STATES[state](models)

    await models.close()
    await models.close()

    assert (binding.state, binding.engine.closes) == (State.GONE, closes)


async def test_a_place_at_an_idle_model_is_granted_at_once_and_never_waits():
    slots = Slots()

    ticket = slots.take()

    assert ticket.is_running
    assert (slots.running, slots.waiting) == (1, 0)
    assert await ticket.granted()


async def test_a_burst_is_one_that_runs_the_cap_that_wait_and_one_refused():
    slots = Slots(limit=3)

    tickets = [slots.take() for _ in range(5)]

    assert [ticket and ticket.is_running for ticket in tickets] == [True, False, False, False, None]
    assert (slots.running, slots.waiting, slots.is_full) == (1, 3, True)


async def test_eighteen_arrivals_behind_a_holder_at_the_default_cap_are_two_refusals():
    slots = Slots()
    slots.take()

    tickets = [slots.take() for _ in range(18)]

    assert tickets.count(None) == 2
    assert tickets[-2:] == [None, None]


async def test_a_burst_of_two_is_admitted_at_a_cap_of_one_and_a_third_is_not():
    slots = Slots(limit=1)

    assert [slots.take() is not None for _ in range(3)] == [True, True, False]


async def test_as_many_run_together_as_there_is_room_for():
    slots = Slots(capacity=2, limit=1)

    tickets = [slots.take() for _ in range(4)]

    assert [ticket and ticket.is_running for ticket in tickets] == [True, True, False, None]
    tickets[1].leave()
    assert tickets[2].is_running


async def test_waiters_run_in_the_order_they_came_though_one_in_the_middle_leaves():
    slots = Slots()
    holder, first, second, third = (slots.take() for _ in range(4))

    second.leave()
    holder.leave()
    assert (first.is_running, third.is_running) == (True, False)
    first.leave()

    assert third.is_running
    assert not await second.granted()


async def test_a_waiter_that_leaves_frees_its_place_for_the_next_arrival():
    slots = Slots(limit=1)
    slots.take()
    waiter = slots.take()
    assert slots.take() is None

    waiter.leave()

    assert slots.waiting == 0
    assert slots.take() is not None


async def test_to_leave_twice_gives_one_place_back():
    slots = Slots()
    holder, first, second = (slots.take() for _ in range(3))

    holder.leave()
    holder.leave()

    assert (first.is_running, second.is_running, slots.running) == (True, False, 1)


async def test_running_out_of_time_does_not_lose_the_place():
    slots = Slots()
    holder, first, second = (slots.take() for _ in range(3))

    assert not await first.granted(0)
    assert slots.waiting == 2
    holder.leave()

    assert await first.granted(0)
    assert not await second.granted(0)


async def test_a_grant_wakes_the_one_that_waits_for_it():
    slots = Slots()
    holder, waiter = slots.take(), slots.take()
    waiting = asyncio.create_task(waiter.granted(60))
    await asyncio.sleep(0)

    holder.leave()

    assert await waiting


async def test_a_ticket_left_while_it_is_awaited_is_not_granted():
    slots = Slots()
    slots.take()
    waiter = slots.take()
    waiting = asyncio.create_task(waiter.granted())
    await asyncio.sleep(0)

    waiter.leave()

    assert not await waiting


@pytest.mark.parametrize("granted_first", [False, True])
async def test_a_cancelled_wait_neither_leaks_nor_loses_a_grant(granted_first):
    slots = Slots()
    holder, waiter, last = (slots.take() for _ in range(3))
    waiting = asyncio.create_task(waiter.granted())
    await asyncio.sleep(0)

    if granted_first:
        holder.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (waiter.is_running, slots.waiting) == (granted_first, 1 if granted_first else 2)
    holder.leave()
    waiter.leave()

    assert last.is_running
    last.leave()
    assert (slots.running, slots.waiting) == (0, 0)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.integers(-1, 9), max_size=60))
def test_any_order_of_arrivals_and_departures_is_first_come_first_served(capacity, limit, moves):
    slots = Slots(capacity, limit)
    inside, taken = [], []
    for move in moves:
        if move < 0:
            ticket = slots.take()
            assert (ticket is None) == (len(inside) >= capacity + limit)
            if ticket:
                inside.append(ticket)
                taken.append(ticket)
        elif move < len(taken):
            taken[move].leave()
            inside = [ticket for ticket in inside if ticket is not taken[move]]

        assert [ticket for ticket in taken if ticket.is_running] == inside[:capacity]
        assert (slots.running, slots.waiting) == (len(inside[:capacity]), len(inside[capacity:]))


class Held:
    """What a test knows of one model object."""

    def __init__(self, engine: Loadable) -> None:
        self.engine = engine
        self.instance: int | None = None
        self.names: set[str] = set()
        self.leases = self.retains = self.tombstones = self.ended = 0
        self.is_replacement = self.is_loaded = False

    @property
    def is_held(self) -> bool:
        return bool(self.names or self.leases or self.retains or self.is_replacement)


class Interleavings(RuleBasedStateMachine):
    """Any order of names, loads, leases, retains and ends, against a bookkeeping of its own."""

    holders = Bundle("holders")
    leases = Bundle("leases")
    retains = Bundle("retains")
    names = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.models = Registry(lambda _: Loadable(), clock=lambda: NOW)
        self.known: list[Held] = []
        self.replacements: dict[str, Held] = {}
        self.newest = 0

    def teardown(self) -> None:
        for held in self.known:
            held.engine.may_load.set()
        self.runner.run(self.models.close())
        assert all(held.engine.closes == held.ended + held.is_held for held in self.known)
        self.runner.close()

    def do(self, work) -> object:
        async def run():
            done = work()
            for _ in range(8):
                await asyncio.sleep(0)
            return done

        before = {held: held.is_held for held in self.known}
        done = self.runner.run(run())
        for held in self.known:
            if before.get(held) and not held.is_held:
                held.ended += 1
                held.is_loaded = False
            if not held.is_held and not held.tombstones:
                held.instance = None
        return done

    def named(self, name) -> Held | None:
        return next((held for held in self.known if name in held.names), None)

    def new(self, *, waits: bool) -> Held:
        self.known.append(Held(Loadable(waits=waits)))
        return self.known[-1]

    def identify(self, held, binding) -> None:
        if held.instance is None:
            assert binding.instance > self.newest
            held.instance = self.newest = binding.instance
        assert binding.instance == held.instance

    @initialize(target=holders)
    def make_models(self):
        return multiple(*(self.new(waits=False) for _ in range(3)))

    @rule(name=names, held=holders)
    def register(self, name, held):
        def work():
            binding, old = self.models.register(name, held.engine), self.named(name)
            if old is not None:
                old.names.discard(name)
            held.names.add(name)
            self.identify(held, binding)

        self.do(work)

    @rule(held=holders, fails=st.booleans())
    def load(self, held, fails):
        binding = next((self.models[name] for name in held.names), None)
        if binding is not None and binding.state is State.LOADING:
            held.engine.error = LoadError("No.") if fails else None
            self.runner.run(binding.load())
            held.is_loaded = not fails

    @rule(name=names)
    def unregister(self, name):
        def work():
            held, replacement = self.named(name), self.replacements.pop(name, None)
            assert self.models.unregister(name) is (held is not None)
            if held is not None:
                held.names.discard(name)
            if replacement is not None:
                replacement.is_replacement = False

        self.do(work)

    @rule(held=holders)
    def die(self, held):
        held.engine.healthy = False

    @rule(target=holders, name=names)
    def replace(self, name):
        serving = self.named(name)
        if self.models.under_way(name) or serving is None or not (serving.is_loaded and serving.engine.healthy):
            return multiple()
        new = self.new(waits=True)
        new.is_replacement, self.replacements[name] = True, new
        self.do(lambda: self.models.replace(name, new.engine))
        self.identify(new, self.models.replacement(name))
        return multiple()

    @rule(target=holders, name=names, fails=st.booleans())
    def finish_replacement(self, name, fails):
        new = self.replacements.pop(name, None)
        if new is None:
            return multiple()

        def work():
            new.engine.finish(LoadError("No.") if fails else None)
            new.is_replacement = False
            if not fails:
                self.named(name).names.discard(name)
                new.names.add(name)
                new.is_loaded = True

        self.do(work)
        return new

    @rule(target=leases, name=names)
    def lease(self, name):
        held, lease = self.named(name), self.models.lease(name)
        assert (lease is not None) == (held is not None and held.is_loaded and held.engine.healthy)
        if lease is None:
            return multiple()
        held.leases += 1
        return lease, held

    @rule(lease=consumes(leases), times=st.integers(1, 2))
    def release(self, lease, times):
        def work():
            lease[1].leases -= 1
            for _ in range(times):
                lease[0].release()

        self.do(work)

    @rule(target=retains, lease=leases)
    def retain(self, lease):
        lease[1].retains += 1
        return lease[0].binding.retain(), lease[1]

    @rule(target=retains, retain=consumes(retains))
    def wedge(self, retain):
        def work():
            retain[0].release(wedged=True)
            if retain[0] not in self.wedged:
                retain[1].retains -= 1
                retain[1].tombstones += 1
                self.wedged.add(retain[0])

        self.do(work)
        return retain

    @rule(retain=consumes(retains), times=st.integers(1, 2))
    def settle(self, retain, times):
        def work():
            for _ in range(times):
                retain[0].release()
            if retain[0] in self.wedged:
                retain[1].tombstones -= 1
            else:
                retain[1].retains -= 1

        self.do(work)

    @initialize()
    def have_no_wedged_write(self):
        self.wedged = set()

    @invariant()
    def names_stand_for_what_they_were_given(self):
        expected = {name: held.engine for held in self.known for name in held.names}
        assert {name: binding.engine for name, binding in self.models.items()} == expected

    @invariant()
    def counts_are_true_and_never_negative(self):
        bindings = {binding.engine: binding for binding in self.models._bindings.values()}
        for held in self.known:
            if held.instance is None:
                assert held.engine not in bindings
            else:
                binding = bindings[held.engine]
                counts = (binding.names, binding.leases, binding.retains, binding.tombstones)
                names = len(held.names) + held.is_replacement
                assert counts == (names, held.leases, held.retains, held.tombstones)
                assert min(counts) >= 0

    @invariant()
    def ids_are_stable_while_anything_holds_them(self):
        for binding in self.models._bindings.values():
            held = next(held for held in self.known if held.engine is binding.engine)
            assert binding.instance == held.instance
            assert binding.state is not State.GONE

    @invariant()
    def a_model_is_closed_exactly_once_each_time_nothing_holds_it(self):
        assert [held.engine.closes for held in self.known] == [held.ended for held in self.known]


Interleavings.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
