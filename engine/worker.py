"""The thread a model lives on: it loads the model, steps its batch, and takes in new decodes between steps.

MLX's streams belong to a thread: arrays first evaluated in another one fail. So the model is loaded where it runs.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import mlx.core as mx
from mlx_lm.tokenizer_utils import TokenizerWrapper
from msgspec import Struct

from engine.batch import Batch, Limits, is_batchable
from engine.channel import Channel
from engine.errors import to_decode_error
from engine.pieces import CacheUse
from engine.prompt_cache import PromptCache
from engine.sequence import Job
from engine.templates import context_length

log = logging.getLogger(__name__)

Load = Callable[[], tuple[Any, TokenizerWrapper]]

IDLE_SECONDS = 30.0  # then MLX gives back the memory it keeps for the next arrays


class Loaded(Struct, frozen=True):
    """What others than its thread need of a model. Not the model: whoever holds that holds its memory."""

    tokenizer: TokenizerWrapper
    context_length: int
    is_batchable: bool


class Worker:
    """One thread and its model. Once it has ended, for whatever reason, it takes no decode and runs no more."""

    def __init__(self, load: Load, limits: Limits) -> None:
        self.loaded: Future[Loaded] = Future()
        self.loaded.set_running_or_notify_cancel()  # so that nobody who stops waiting cancels it
        self.thread = threading.Thread(target=self._run, name="mlx", daemon=True)
        self.ended: str | None = None
        self._load = load
        self._limits = limits
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()  # None only wakes the thread
        self._lock = threading.Lock()
        self._open: set[Channel] = set()
        self._stepped_at: float | None = None
        self._kept: PromptCache | None = None

    @property
    def healthy(self) -> bool:
        """Whether the thread lives and takes decodes."""
        return self.thread.is_alive() and self.ended is None

    @property
    def is_decoding(self) -> bool:
        """Whether a decode is under way or waits for the thread."""
        return bool(self._open)

    @property
    def step_seconds(self) -> float:
        """How long the step that runs now has taken; 0 while there is nothing to do."""
        started = self._stepped_at
        return 0.0 if started is None else time.monotonic() - started

    @property
    def cache(self) -> CacheUse | None:
        """How full the pool of KV caches is; None while there is none."""
        kept = self._kept
        return None if kept is None else kept.use

    def wake(self) -> None:
        """Have the thread look whether there is something to do."""
        self._inbox.put(None)

    def submit(self, job: Job) -> None:
        """Give the thread a decode, or its reader the reason why there is none."""
        with self._lock:
            if self.ended:
                job.channel.close(to_decode_error(self.ended))
                return
            self._open.add(job.channel)
            self._inbox.put(job)

    def end(self, reason: str, cause: BaseException | None = None) -> None:
        """Break off every decode and let the thread end, once it can."""
        with self._lock:
            self.ended = self.ended or reason
            for channel in self._open:
                channel.close(to_decode_error(reason, cause))
            self._open.clear()
        self.wake()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # the readers must hear of it, whatever it is
            log.exception("The engine's thread died.")
            self.end("The engine's thread died.", error)
        finally:
            self._kept = None  # a worker outlives its thread, and its caches must not
            self.end("The model could not be loaded.")
            mx.clear_cache()
            # A process that exits soon after a thread has left its streams behind is aborted by MLX.
            mx.clear_streams()

    def _serve(self) -> None:
        try:
            model, tokenizer = self._load()
            mx.eval(model.parameters())
            # every thread has its own random numbers, and MLX begins them all alike
            mx.random.seed(secrets.randbits(64))
            loaded = Loaded(tokenizer, context_length(model, tokenizer), is_batchable(model))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the load is awaited
            self.loaded.set_exception(error)
            return
        batch = Batch(model, tokenizer, self._limits, self._forget)
        self._kept = batch.kept
        self.loaded.set_result(loaded)
        while self.ended is None:
            for job in self._arrived(batch.is_idle):
                batch.add(job)
            self._step(batch)
        batch.close()

    def _step(self, batch: Batch) -> None:
        self._stepped_at = time.monotonic()
        try:
            batch.step()
        except Exception as error:
            log.exception("A step of the batch broke.")
            batch.survive(error)
        self._stepped_at = None

    def _arrived(self, may_wait: bool) -> Iterator[Job]:  # noqa: FBT001  the one thing it is told
        job = self._wait() if may_wait else None
        if job:
            yield job
        while not self._inbox.empty():
            if job := self._inbox.get():
                yield job

    def _wait(self) -> Job | None:
        try:
            return self._inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            mx.clear_cache()
        return self._inbox.get()

    def _forget(self, channel: Channel) -> None:
        with self._lock:
            self._open.discard(channel)
