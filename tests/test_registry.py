"""The registry: names, aliases, swaps, leases and retains, and when a model leaves memory."""

import asyncio
import logging

import pytest

from engine.errors import LoadError
from engine.scripted import ScriptedEngine
from handlers.registry import Registry
from machines.binding import State
from tests.doubles import NOW


class Loadable(ScriptedEngine):
    """An engine whose load waits until it is told how to end, and that counts how often it was closed."""

    def __init__(self, *, waits: bool = False) -> None:
        super().__init__()
        self.closes = 0
        self.error: Exception | None = None
        self.may_load = asyncio.Event()
        if not waits:
            self.may_load.set()

    async def load(self) -> None:
        await self.may_load.wait()
        self.loads += 1
        self.healthy = self.error is None
        if self.error:
            raise self.error

    async def close(self) -> None:
        self.closes += 1
        await super().close()

    def finish(self, error: Exception | None = None) -> None:
        self.error = error
        self.may_load.set()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def models(clock):
    registry = Registry(lambda _: Loadable(), queue_limit=2, clock=clock)
    yield registry
    for binding in list(registry._bindings.values()):
        binding.engine.may_load.set()
    await registry.close()


@pytest.fixture
def engine():
    return Loadable()


async def load(models, name, engine):
    binding = models.register(name, engine)
    await binding.load()
    return binding


async def closes(models, engine):
    await models.settled()
    return engine.closes


async def test_a_registered_model_is_found_by_its_name_and_listed_in_order(models, engine):
    for name in ("b", "a"):
        models.register(name, engine)

    assert list(models) == ["b", "a"]
    assert models["a"].engine is engine
    assert models.get("c") is None


async def test_the_same_object_under_the_same_name_only_refreshes_its_time(models, engine, clock):
    binding = await load(models, "a", engine)
    clock.now += 5

    assert models.register("a", engine) is binding
    assert models.created("a") == NOW + 5
    assert (binding.names, binding.state) == (1, State.READY)
    assert await closes(models, engine) == 0


async def test_another_object_under_the_same_name_replaces_the_old_one_which_is_closed(models, engine):
    old = await load(models, "a", engine)
    new = await load(models, "a", Loadable())

    assert models["a"] is new
    assert new.instance > old.instance
    assert new.slots is not old.slots
    assert (old.state, await closes(models, engine)) == (State.GONE, 1)


async def test_a_swap_keeps_the_place_of_the_name_in_the_list(models):
    for name in ("a", "b", "a"):
        models.register(name, Loadable())

    assert list(models) == ["a", "b"]


async def test_an_alias_shares_instance_id_and_slots(models, engine):
    first = await load(models, "a", engine)
    second = models.register("b", engine)

    assert second is first
    assert models["b"].instance == models["a"].instance
    assert models["b"].slots is models["a"].slots


async def test_a_model_is_closed_with_the_last_of_its_names(models, engine):
    await load(models, "a", engine)
    models.register("b", engine)

    assert models.unregister("a")
    assert await closes(models, engine) == 0
    assert models.unregister("b")
    assert await closes(models, engine) == 1


async def test_a_swap_of_one_alias_leaves_the_other(models, engine):
    old = await load(models, "a", engine)
    models.register("b", engine)

    await load(models, "a", Loadable())

    assert models["b"] is old
    assert models["b"].look() is State.READY


async def test_an_unknown_name_has_nothing_to_unregister_or_lease(models):
    assert not models.unregister("a")
    assert models.lease("a") is None


async def test_a_model_that_is_not_ready_has_no_lease(models, engine):
    binding = models.register("a", engine)
    assert models.lease("a") is None
    await binding.load()
    assert models.lease("a") is not None

    engine.healthy = False

    assert models.lease("a") is None
    assert binding.state is State.BROKEN


async def test_a_lease_defers_the_teardown_and_its_release_does_it(models, engine):
    await load(models, "a", engine)
    lease = models.lease("a")
    models.unregister("a")
    assert (lease.binding.state, await closes(models, engine)) == (State.DRAINING, 0)

    lease.release()

    assert (lease.binding.state, await closes(models, engine)) == (State.GONE, 1)


async def test_a_lease_is_released_once_against_the_object_it_was_taken_from(models, engine):
    await load(models, "a", engine)
    lease, other = models.lease("a"), models.lease("a")
    new = await load(models, "a", Loadable())
    models.lease("a")

    lease.release()
    lease.release()

    assert (other.binding.leases, new.leases) == (1, 1)
    assert await closes(models, engine) == 0


async def test_the_same_object_named_again_while_it_drains_keeps_its_id_and_slots(models, engine):
    old = await load(models, "a", engine)
    lease, ticket = models.lease("a"), old.slots.take()
    models.unregister("a")

    revived = models.register("b", engine)
    lease.release()

    assert revived is old
    assert (revived.state, revived.slots.running) == (State.READY, 1)
    assert await closes(models, engine) == 0
    ticket.leave()


async def test_a_model_that_died_while_it_drained_is_broken_when_it_is_named_again(models, engine):
    binding = await load(models, "a", engine)
    models.lease("a")
    models.unregister("a")
    engine.healthy = False

    models.register("a", engine)

    assert models.lease("a") is None
    assert binding.state is State.BROKEN


async def test_the_same_object_named_again_after_its_teardown_is_a_new_instance(models, engine):
    first = await load(models, "a", engine)
    models.unregister("a")

    again = await load(models, "a", engine)

    assert again.instance > first.instance
    assert again.look() is State.READY


@pytest.mark.parametrize("first", ["lease", "retain"])
async def test_leases_and_retains_both_defer_the_teardown(models, engine, first):
    binding = await load(models, "a", engine)
    holds = {"lease": models.lease("a"), "retain": binding.retain()}
    models.unregister("a")

    holds.pop(first).release()
    assert (binding.state, await closes(models, engine)) == (State.DRAINING, 0)
    holds.popitem()[1].release()

    assert (binding.state, await closes(models, engine)) == (State.GONE, 1)


async def test_a_slow_write_keeps_the_instance_id_over_unregister_and_register(models, engine):
    binding = await load(models, "a", engine)
    retain = binding.retain()
    models.unregister("a")

    again = models.register("a", engine)
    retain.release()

    assert again.instance == binding.instance
    assert again.look() is State.READY


async def test_a_wedged_write_frees_the_model_and_keeps_only_its_id(models, engine, clock):
    binding = await load(models, "a", engine)
    retain = binding.retain()
    models.unregister("a")

    retain.release(wedged=True)

    assert (binding.state, await closes(models, engine)) == (State.RETIRED, 1)
    clock.now += 5
    again = await load(models, "a", engine)
    assert again.started_at == NOW + 5
    assert (again.instance, again.look()) == (binding.instance, State.READY)
    models.unregister("a")
    assert (binding.state, await closes(models, engine)) == (State.RETIRED, 2)


async def test_another_object_never_gets_a_tombstones_id(models, engine):
    binding = await load(models, "a", engine)
    binding.retain().release(wedged=True)
    models.unregister("a")

    assert models.register("a", Loadable()).instance > binding.instance


async def test_the_settling_of_a_wedged_write_gives_up_the_id(models, engine):
    binding = await load(models, "a", engine)
    retain = binding.retain()
    models.unregister("a")
    retain.release(wedged=True)

    retain.release()
    retain.release()
    retain.release(wedged=True)

    assert (binding.state, binding.tombstones, await closes(models, engine)) == (State.GONE, 0, 1)
    assert models.register("a", engine).instance > binding.instance


async def test_overlapping_wedged_writes_keep_the_id_until_the_last_settles(models, engine):
    binding = await load(models, "a", engine)
    first, second = binding.retain(), binding.retain()
    models.unregister("a")
    first.release(wedged=True)
    assert binding.state is State.DRAINING
    second.release(wedged=True)

    first.release()
    assert (binding.state, binding.tombstones) == (State.RETIRED, 1)
    second.release()

    assert binding.state is State.GONE


async def test_a_wedged_write_of_a_model_that_is_still_named_changes_nothing(models, engine):
    binding = await load(models, "a", engine)
    retain = binding.retain()

    retain.release(wedged=True)
    retain.release(wedged=True)

    assert (binding.state, binding.retains, binding.tombstones) == (State.READY, 0, 1)
    retain.release()
    assert (binding.state, binding.tombstones) == (State.READY, 0)


async def test_a_name_is_current_only_for_the_very_model_it_stands_for(models, engine):
    binding = await load(models, "a", engine)
    models.register("b", engine)
    models.lease("a")
    assert models.is_current("a", binding)

    models.unregister("a")
    assert not models.is_current("a", binding)
    assert models.is_current("b", binding)
    models.register("a", Loadable())
    assert not models.is_current("a", binding)
    models.register("a", engine)
    assert models.is_current("a", binding)


@pytest.mark.parametrize(
    ("error", "reason"), [(LoadError("'x' does not fit."), "'x' does not fit."), (OSError(), "OSError")]
)
async def test_a_failed_load_leaves_the_binding_broken_with_its_reason(models, engine, error, reason):
    engine.finish(error)

    binding = await load(models, "a", engine)

    assert binding.look() is State.BROKEN
    assert reason in binding.reason


async def test_a_replacement_serves_only_once_it_is_loaded(models, engine):
    old = await load(models, "a", engine)
    new = Loadable(waits=True)

    models.replace("a", new)
    assert models["a"] is old
    assert models.under_way("a") is models.replacement("a")
    new.finish()
    await models.settled()

    assert models["a"].engine is new
    assert models["a"].names == 1
    assert (models.replacement("a"), models.under_way("a")) == (None, None)
    assert (engine.closes, new.closes) == (1, 0)


async def test_a_replacement_that_cannot_be_loaded_leaves_the_old_model_and_its_reason(models, engine):
    old = await load(models, "a", engine)
    new = Loadable()
    new.finish(LoadError("No."))

    models.replace("a", new)
    await models.settled()

    assert (models["a"], models["a"].look()) == (old, State.READY)
    assert models.replacement("a").reason == "No."
    assert models.under_way("a") is None
    assert (engine.closes, new.closes) == (0, 1)


async def test_the_next_replacement_forgets_that_the_last_one_failed(models, engine):
    await load(models, "a", engine)
    bad = Loadable()
    bad.finish(LoadError("No."))
    models.replace("a", bad)
    await models.settled()

    models.replace("a", Loadable())
    await models.settled()

    assert models.replacement("a") is None
    assert engine.closes == 1


async def test_a_broken_model_is_replaced_at_once(models, engine):
    await load(models, "a", engine)
    engine.healthy = False
    new = Loadable(waits=True)

    models.replace("a", new)

    assert models["a"].engine is new
    assert models["a"].state is State.LOADING
    new.finish()
    await models.settled()
    assert (engine.closes, models["a"].state) == (1, State.READY)


async def test_a_model_that_is_replaced_at_once_forgets_that_the_last_load_failed(models, engine):
    await load(models, "a", engine)
    bad = Loadable()
    bad.finish(LoadError("No."))
    models.replace("a", bad)
    await models.settled()
    engine.healthy = False

    models.replace("a", Loadable())

    assert models.replacement("a") is None


async def test_a_name_taken_away_gives_up_the_load_of_its_replacement(models, engine):
    await load(models, "a", engine)
    new = Loadable(waits=True)
    models.replace("a", new)
    replacement = models.replacement("a")

    models.unregister("a")
    assert list(models) == []
    new.finish()
    await models.settled()

    assert (list(models), replacement.names) == ([], 0)
    assert (engine.closes, new.closes) == (1, 1)


async def test_a_model_taken_away_while_it_loads_does_not_come_back(models):
    engine = Loadable(waits=True)
    models.replace("a", engine)
    gone = models["a"]

    models.unregister("a")
    engine.finish()
    await gone.load()
    await models.settled()

    assert (list(models), gone.state, engine.closes) == ([], State.GONE, 1)


async def test_a_name_taken_away_after_a_failed_replacement_closes_nothing_twice(models, engine):
    await load(models, "a", engine)
    bad = Loadable()
    bad.finish(LoadError("No."))
    models.replace("a", bad)
    await models.settled()
    failed = models.replacement("a")

    models.unregister("a")

    assert await closes(models, engine) == 1
    assert (bad.closes, failed.names) == (1, 0)


async def test_the_start_loads_each_model_once_and_announces_each_of_its_names(models, engine):
    bad, ready = Loadable(), await load(models, "ready", Loadable())
    bad.finish(LoadError("No."))
    for name, model in {"a": engine, "b": engine, "c": bad}.items():
        models.register(name, model)
    announced = []

    models.start(announced.append)
    await models.settled()

    assert announced == ["a", "b"]
    assert [models[name].state for name in "abc"] == [State.READY, State.READY, State.BROKEN]
    assert len(ready.trace) == 1


async def test_the_close_frees_every_model_once_whatever_holds_it(models, engine):
    binding = await load(models, "a", engine)
    lease, retain = models.lease("a"), binding.retain()
    gone = await load(models, "b", Loadable())
    models.unregister("b")

    models.replace("a", Loadable(waits=False))
    assert models.replacement("a")
    await models.close()
    assert models.replacement("a") is None
    lease.release()
    retain.release(wedged=True)
    retain.release()

    assert (list(models), binding.state) == ([], State.GONE)
    assert (binding.leases, binding.retains, binding.tombstones) == (0, 0, 0)
    assert (engine.closes, gone.engine.closes) == (1, 1)


async def test_a_model_that_cannot_be_closed_is_logged_and_let_go_of(models, engine, caplog):
    async def break_off():
        raise ZeroDivisionError

    engine.close = break_off
    binding = await load(models, "a", engine)

    with caplog.at_level(logging.ERROR):
        models.unregister("a")
        await models.settled()

    assert binding.state is State.GONE
    assert "could not be closed" in caplog.text


async def test_a_model_whose_engine_died_is_loaded_again_under_its_id(models, engine):
    binding = await load(models, "a", engine)
    instance = binding.instance
    engine.healthy = False

    models.watch()

    assert models.lease("a") is None
    assert binding.state is State.LOADING
    await models.settled()
    assert (binding.state, binding.instance, binding.reason) == (State.READY, instance, None)
    assert models.lease("a") is not None


async def test_a_model_that_is_being_loaded_again_is_not_loaded_twice(models, engine):
    await load(models, "a", engine)
    engine.healthy = False

    models.watch()
    models.watch()
    await models.settled()

    assert engine.loads == 2


async def test_a_model_that_cannot_be_loaded_again_stays_broken_and_says_why(models, engine):
    binding = await load(models, "a", engine)
    engine.healthy, engine.error = False, LoadError("No memory.")

    models.watch()
    await models.settled()
    models.watch()

    assert (binding.state, binding.reason) == (State.BROKEN, "No memory.")


async def test_a_model_that_died_while_it_drained_is_closed_so_that_its_requests_end(models, engine):
    binding = await load(models, "a", engine)
    lease = models.lease("a")
    models.unregister("a")
    engine.healthy = False

    models.watch()
    models.watch()

    assert (binding.state, await closes(models, engine)) == (State.DRAINING, 1)
    lease.release()
    assert (binding.state, await closes(models, engine)) == (State.GONE, 1)


async def test_the_slots_are_as_many_as_the_engine_decodes_together(models, engine):
    engine.capacity = 3
    binding = models.register("a", engine)
    engine.capacity = 1

    await binding.load()

    assert binding.slots.capacity == 1
