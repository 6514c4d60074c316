"""Fixtures: an app over a scripted engine and a database in memory, and the moves that the tests made."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from engine.blas import load_fast_blas

load_fast_blas()

from engine.pieces import Text  # noqa: E402
from engine.scripted import Pause, ScriptedEngine  # noqa: E402 - mlx must be imported after a fast BLAS
from handlers import steps  # noqa: E402
from handlers.app import create_app  # noqa: E402
from handlers.exchange import Exchange  # noqa: E402
from handlers.services import Services  # noqa: E402
from machines.driver import Driven, Move  # noqa: E402
from storage.store import Store, open_store  # noqa: E402
from tests.asgi import Client, running  # noqa: E402
from tests.doubles import say, to_services  # noqa: E402

FIRED: set[tuple[str, str, str, str]] = set()
ENDED: list[Exchange] = []


class Noted(list[Move]):
    """A trace that takes note of each move a product's object makes, not of those that a test fires by hand."""

    def __init__(self, driven: Driven) -> None:
        super().__init__()
        self._table = driven.table.name if type(driven).__module__.startswith("handlers.") else None
        self._driven = driven

    def append(self, move: Move) -> None:
        super().append(move)
        if self._table:
            FIRED.add((self._driven.table.name, move.event, move.source.name, move.target.name))


class SseExtension(SingleFileSnapshotExtension):
    """One scenario, one file, as the wire reads."""

    file_extension = "sse"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: Any, **_: Any) -> str:
        return str(data)


@pytest.fixture
def sse(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SseExtension)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store(":memory:")
    yield store
    await store.close()


@pytest.fixture
def services(engine: ScriptedEngine, store: Store) -> Services:
    return to_services(engine, store)


@pytest.fixture
async def client(services: Services) -> AsyncIterator[Client]:
    async with running(create_app(services)) as client:
        yield client


@pytest.fixture
def pause(engine: ScriptedEngine) -> Pause:
    """Make the model stop after its first token."""
    pause = Pause()
    engine.script = [Text("One"), pause, *say(" two", prompt_tokens=7)]
    return pause


@pytest.fixture(scope="session", autouse=True)
def moves_made() -> Iterator[set[tuple[str, str, str, str]]]:
    """Collect (table, event, from, to) of every move that the product's own objects made."""
    report, begin = steps.report, Driven.__init__

    def collect(exchange: Exchange) -> None:
        ENDED.append(exchange)
        del ENDED[:-100]
        report(exchange)

    def begin_noted(driven: Driven, *given: Any, **named: Any) -> None:
        begin(driven, *given, **named)
        driven.trace = Noted(driven)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "report", collect)
        patch.setattr(Driven, "__init__", begin_noted)
        yield FIRED


@pytest.fixture
def ended() -> list[Exchange]:
    """Give the exchanges that reach a final state during the test."""
    ENDED.clear()
    return ENDED


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no setting in the environment."""
    for name in [name for name in os.environ if name.startswith(("INTERLOCK_", "MLX_"))]:
        monkeypatch.delenv(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test that counts the moves last."""
    items.sort(key=lambda item: item.name == "test_every_move_of_every_machine_was_fired")
