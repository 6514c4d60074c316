"""The models by name: registered, aliased, swapped and let go of while requests run. Nothing here waits but a load."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from engine.pieces import Engine
from handlers.models import Binding, Lease, Slots
from machines.binding import State
from machines.driver import Move

log = logging.getLogger("interlock.registry")


class Registry(Mapping[str, Binding]):
    """Names and their bindings, in the order they were first given; `make_engine` raises LoadError for a bad source."""

    def __init__(
        self,
        make_engine: Callable[[str], Engine],
        *,
        queue_limit: int = 16,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.make_engine = make_engine
        self.clock = clock
        self.heard: Callable[[str, Move], None] = lambda _, __: None
        self._queue_limit = queue_limit
        self._names: dict[str, Binding] = {}
        self._created: dict[str, int] = {}
        self._replacements: dict[str, Binding] = {}
        self._bindings: dict[int, Binding] = {}
        self._instances = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> Binding:
        return self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def register(self, name: str, engine: Engine) -> Binding:
        """Give a name to a model object: a new one, which is then to be loaded, or one that is known. Swaps at once."""
        old, binding = self._names.get(name), self._bind(engine)
        if binding is not old:
            binding.add_name(self.clock())
            self._names[name] = binding
        if old is not None and binding is not old:
            old.drop_name()
        self._created[name] = int(self.clock())
        log.info("model %s is instance %d", name, binding.instance)
        return binding

    def unregister(self, name: str) -> bool:
        """Take a name away, and give up a load that was to replace its model."""
        binding, replacement = self._names.pop(name, None), self._replacements.pop(name, None)
        if binding is None:
            return False
        del self._created[name]
        binding.drop_name()
        if replacement is not None and replacement.state is State.LOADING:
            replacement.drop_name()
        return True

    def created(self, name: str) -> int:
        """Tell when a name was last registered, in Unix seconds."""
        return self._created[name]

    def lease(self, name: str) -> Lease | None:
        """Hold the model of a name for one request, or None if it is unknown or not ready."""
        binding = self._names.get(name)
        return binding.lease() if binding is not None and binding.look() is State.READY else None

    def is_current(self, name: str, binding: Binding) -> bool:
        """Tell whether a name still stands for the very model it stood for."""
        return self._names.get(name) is binding

    def replacement(self, name: str) -> Binding | None:
        """Give the model that is being loaded for a name which another one serves, or that last failed to."""
        return self._replacements.get(name)

    def under_way(self, name: str) -> Binding | None:
        """Give the model that is being loaded for a name now."""
        bindings = (self._names.get(name), self._replacements.get(name))
        return next((binding for binding in bindings if binding and binding.state is State.LOADING), None)

    def replace(self, name: str, engine: Engine) -> None:
        """Load a new model object in the background; a model that serves the name does so until then."""
        serving = self._names.get(name)
        if serving is None or serving.look() is not State.READY:
            self._replacements.pop(name, None)
            self._spawn(self.register(name, engine).load())
            return
        binding = self._bind(engine)
        binding.add_name(self.clock())
        self._replacements[name] = binding
        self._spawn(self._load_aside(name, binding))

    def start(self, announce: Callable[[str], None] = lambda _: None) -> None:
        """Load in the background what was registered, and announce each name that is then served."""
        for binding in dict.fromkeys(self._names.values()):
            if binding.state is State.LOADING:
                self._spawn(self._load_first(binding, announce))

    def watch(self) -> None:
        """Load again the models whose engine died or stands still."""
        for binding in list(self._bindings.values()):
            if binding.watch(self.clock()):
                self._spawn(binding.load())

    async def settled(self) -> None:
        """Wait for the loads and closes that are under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Let go of every model, whatever holds it, and wait until their memory is free."""
        self._names.clear()
        self._created.clear()
        self._replacements.clear()
        for binding in list(self._bindings.values()):
            binding.close()
        await self.settled()

    def let_go(self, engine: Engine) -> None:
        self._spawn(_close(engine))

    def forget(self, binding: Binding) -> None:
        del self._bindings[id(binding.engine)]

    def moved(self, binding: Binding, move: Move) -> None:
        known = [*self._names.items(), *self._replacements.items()]
        self.heard(next((name for name, bound in known if bound is binding), ""), move)

    def _bind(self, engine: Engine) -> Binding:
        binding = self._bindings.get(id(engine))
        if binding is None:
            slots = Slots(engine.capacity, self._queue_limit)
            binding = Binding(engine, next(self._instances), slots, self.clock(), self)
            self._bindings[id(engine)] = binding
        return binding

    async def _load_first(self, binding: Binding, announce: Callable[[str], None]) -> None:
        await binding.load()
        for name in [name for name, bound in self._names.items() if bound is binding]:
            if binding.state is State.READY:
                announce(name)

    async def _load_aside(self, name: str, binding: Binding) -> None:
        await binding.load()
        if self._replacements.get(name) is not binding:
            return
        if binding.state is State.READY:
            del self._replacements[name]
            self.register(name, binding.engine)
        binding.drop_name()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _close(engine: Engine) -> None:
    try:
        await engine.close()
    except Exception:
        log.exception("a model could not be closed")
