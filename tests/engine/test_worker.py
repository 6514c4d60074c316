import asyncio
import gc
import threading
import weakref

import mlx.core as mx
import pytest

from engine import worker as workers
from engine.batch import Limits
from engine.channel import Channel
from engine.errors import DecodeError, LoadError
from engine.mlx_engine import MlxEngine
from engine.pieces import CacheUse, Sampling
from engine.sequence import Job
from engine.worker import Worker
from tests.engine.tiny import Watched, make_tokenizer, tokens_of

GREEDY = Sampling(temperature=0, top_p=1, max_tokens=20)
ENDLESS = Sampling(temperature=0, top_p=1, max_tokens=1_000_000)
LIMITS = Limits(capacity=8, prefill_step_size=16, cache_bytes=1 << 20)


class Held:
    """Holds the engine's thread in one call of the model until it is let go."""

    def __init__(self, call=1):
        self.inside, self.let_go = threading.Event(), threading.Event()
        self._call = call

    def __call__(self, call):
        if call == self._call:
            self.inside.set()
            self.let_go.wait()

    async def entered(self):
        await asyncio.to_thread(self.inside.wait)


@pytest.fixture
async def start():
    """Start a worker on a model made in its thread; it has ended at the end."""
    started = []

    async def start(make_model=Watched):
        worker = Worker(lambda: (make_model(), make_tokenizer()), LIMITS)
        started.append(worker)
        worker.thread.start()
        await asyncio.wrap_future(worker.loaded)
        return worker

    yield start
    for worker in started:
        worker.end("The test is over.")
        await asyncio.to_thread(worker.thread.join)


def submit(worker, sampling=GREEDY, prompt="abc"):
    channel = Channel(worker.wake)
    worker.submit(Job(tokens_of(prompt), sampling, None, "", channel))
    return channel


async def pieces_of(channel):
    return [piece async for piece in channel]


async def test_a_decode_is_under_way_until_it_has_ended(start):
    worker = await start()
    channel = submit(worker)
    assert worker.is_decoding

    await pieces_of(channel)
    await pieces_of(submit(worker))  # by then the thread has let go of the first

    assert channel not in worker._open


async def test_a_decode_submitted_before_the_model_is_there_waits_for_it():
    worker = Worker(lambda: (Watched(), make_tokenizer()), LIMITS)
    channel = submit(worker)
    worker.thread.start()

    assert (await pieces_of(channel))[-1].reason in {"stop", "length"}
    worker.end("The test is over.")
    await asyncio.to_thread(worker.thread.join)


async def test_a_thread_that_dies_tells_every_reader_and_takes_no_more(start):
    held = Held(call=3)

    def die(call):
        held(call)
        if call == 3:
            raise SystemExit

    worker = await start(lambda: Watched(die))
    running = submit(worker, ENDLESS)
    await held.entered()
    waiting = submit(worker)

    held.let_go.set()

    for channel in (running, waiting):
        with pytest.raises(DecodeError, match="died") as caught:
            await pieces_of(channel)
        assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(DecodeError, match="died"):
        await pieces_of(submit(worker))
    assert not worker.healthy
    assert not worker.is_decoding


async def test_a_step_that_takes_long_is_seen_from_outside(start):
    held = Held()
    worker = await start(lambda: Watched(held))
    assert worker.step_seconds == 0.0

    channel = submit(worker)
    await held.entered()
    assert worker.step_seconds > 0.0
    assert worker.healthy

    held.let_go.set()
    await pieces_of(channel)


async def test_the_end_does_not_wait_for_a_step_that_hangs(start):
    held = Held()
    worker = await start(lambda: Watched(held))
    channel = submit(worker)
    await held.entered()

    worker.end("Enough.")

    with pytest.raises(DecodeError, match="Enough"):
        await pieces_of(channel)
    assert worker.thread.is_alive()
    held.let_go.set()
    await asyncio.to_thread(worker.thread.join)
    assert worker.ended == "Enough."


async def test_the_first_reason_counts(start):
    worker = await start()

    worker.end("First.")
    worker.end("Second.")

    assert worker.ended == "First."


def test_an_idle_thread_gives_memory_back_and_then_sleeps_until_there_is_work(monkeypatch):
    worker = Worker(lambda: (Watched(), make_tokenizer()), LIMITS)
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.0)
    cleared = []

    def clear_cache():
        cleared.append(True)
        worker.wake()

    monkeypatch.setattr(mx, "clear_cache", clear_cache)

    assert worker._wait() is None
    assert cleared == [True]


def test_a_thread_with_work_gives_nothing_back(monkeypatch):
    worker = Worker(lambda: (Watched(), make_tokenizer()), LIMITS)
    monkeypatch.setattr(mx, "clear_cache", pytest.fail)
    worker.wake()

    assert worker._wait() is None


async def test_threads_draw_different_random_numbers(start):
    drawn = []

    def draw(_):
        drawn.append(mx.random.uniform().item())

    for _ in range(2):
        await pieces_of(submit(await start(lambda: Watched(draw)), Sampling(temperature=0, top_p=1, max_tokens=1)))

    assert drawn[0] != drawn[len(drawn) // 2]


async def test_no_model_outlives_its_thread():
    made = []

    def load():
        model = Watched()
        made.append(weakref.ref(model))
        return model, make_tokenizer()

    worker = Worker(load, LIMITS)
    worker.thread.start()
    await pieces_of(submit(worker))
    worker.end("The test is over.")
    await asyncio.to_thread(worker.thread.join)
    gc.collect()

    assert made[0]() is None
    assert worker.cache is None


# The engine over its worker


async def test_an_engine_tells_how_full_its_pool_of_caches_is_while_a_model_is_loaded():
    engine = MlxEngine(lambda: (Watched(), make_tokenizer()), cache_bytes=1 << 20)
    before = engine.cache
    await engine.load()
    empty = engine.cache
    for prompt in ("abc", "xyz"):
        await pieces_of(engine.decode(tokens_of(prompt), GREEDY))
    await pieces_of(engine.decode(tokens_of("abc"), GREEDY))  # by then the thread has kept those before
    filled = engine.cache
    await engine.close()

    assert before is None
    assert empty == CacheUse(0, 0, 1 << 20)
    assert filled.entries >= 2
    assert 0 < filled.bytes <= filled.limit == 1 << 20
    assert engine.cache is None


async def test_an_engine_whose_step_hangs_is_not_healthy_and_is_loaded_again():
    held = Held()
    hooks = iter([held])
    engine = MlxEngine(lambda: (Watched(next(hooks, lambda _: None)), make_tokenizer()), stall_seconds=1e-9)
    await engine.load()
    assert engine.healthy
    hanging = engine.decode(tokens_of("abc"), GREEDY)
    await held.entered()

    assert not engine.healthy
    with pytest.raises(DecodeError, match="stands still"):
        await pieces_of(engine.decode(tokens_of("abc"), GREEDY))
    old = engine._worker
    await engine.load()

    with pytest.raises(DecodeError, match="stood still"):
        await pieces_of(hanging)
    assert not engine.is_decoding
    engine._stall_seconds = 60
    assert (await pieces_of(engine.decode(tokens_of("abc"), GREEDY)))[-1].prompt_tokens == 3
    held.let_go.set()
    await asyncio.to_thread(old.thread.join)
    await engine.close()


async def test_an_engine_whose_thread_died_is_loaded_again():
    calls = iter(range(100))

    def die(_):
        if next(calls) == 2:
            raise SystemExit

    engine = MlxEngine(lambda: (Watched(die), make_tokenizer()))
    await engine.load()
    with pytest.raises(DecodeError):
        await pieces_of(engine.decode(tokens_of("abc"), GREEDY))
    assert not engine.healthy

    await engine.load()

    assert engine.healthy
    assert (await pieces_of(engine.decode(tokens_of("abc"), GREEDY)))[-1].prompt_tokens == 3
    await engine.close()


async def test_closing_leaves_a_thread_behind_that_hangs():
    held = Held()
    engine = MlxEngine(lambda: (Watched(held), make_tokenizer()), stall_seconds=0.01)
    await engine.load()
    engine.decode(tokens_of("abc"), GREEDY)
    await held.entered()

    await engine.close()

    assert engine._worker.thread.is_alive()
    held.let_go.set()
    await asyncio.to_thread(engine._worker.thread.join)


async def test_closing_while_it_loads_fails_the_load():
    loading, go_on = threading.Event(), threading.Event()

    def load():
        loading.set()
        go_on.wait()
        return Watched(), make_tokenizer()

    engine = MlxEngine(load)
    load_task = asyncio.create_task(engine.load())
    await asyncio.to_thread(loading.wait)
    end, was_told = engine._worker.end, threading.Event()
    engine._worker.end = lambda *reason: (end(*reason), was_told.set())
    close_task = asyncio.create_task(engine.close())
    await asyncio.to_thread(was_told.wait)
    go_on.set()

    with pytest.raises(LoadError, match="closed"):
        await load_task
    await close_task
    assert not engine.healthy


async def test_a_second_load_takes_the_place_of_the_first():
    loading, go_on = threading.Event(), threading.Event()
    models = []

    def load():
        models.append(Watched())
        if len(models) == 1:
            loading.set()
            go_on.wait()
        return models[-1], make_tokenizer()

    engine = MlxEngine(load)
    first = asyncio.create_task(engine.load())
    await asyncio.to_thread(loading.wait)
    old = engine._worker
    await engine.load()
    go_on.set()

    with pytest.raises(LoadError, match="stood still"):
        await first
    await asyncio.to_thread(old.thread.join)
    assert engine.healthy
    assert (await pieces_of(engine.decode(tokens_of("abc"), GREEDY)))[-1].prompt_tokens == 3
    await engine.close()


async def test_a_prompt_can_be_asked_for_while_the_model_loads():
    go_on = threading.Event()

    def load():
        go_on.wait()
        return Watched(), make_tokenizer()

    engine = MlxEngine(load)
    loading = asyncio.create_task(engine.load())
    asking = asyncio.create_task(engine.tokenize([{"role": "user", "content": "Hi"}]))
    await asyncio.sleep(0)
    go_on.set()

    assert len(await asking) == 2 + 3
    await loading
    await engine.close()
