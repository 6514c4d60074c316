"""The engine that runs a model with mlx-lm, on a thread of its own.

MLX's streams belong to a thread: arrays first evaluated in another one fail. So the model is loaded where it runs.
Import this only after the fast BLAS is loaded: it imports MLX, which binds to the first BLAS it finds.
"""

import asyncio
import atexit
import logging
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from queue import SimpleQueue
from typing import Any, Literal

import jinja2
import mlx.core as mx
from mlx_lm.generate import stream_generate
from mlx_lm.sample_utils import make_sampler
from mlx_lm.tokenizer_utils import TokenizerWrapper
from msgspec import Struct

from engine.channel import Channel
from engine.errors import DecodeError, EngineError, LoadError, TemplateError
from engine.lanes import Lanes
from engine.markers import Markers
from engine.pieces import Finish, Sampling, Tools

log = logging.getLogger(__name__)

Load = Callable[[], tuple[Any, TokenizerWrapper]]

# A prefill can be cancelled only between chunks. On two cores, 16 tokens of a 135M model take 0.15 s, and 64, read half
# as fast again, 0.4 s. A GPU needs long chunks to be busy, but mlx-lm's 2048 take seconds with a model of some size.
CPU_PREFILL_STEP = 16
GPU_PREFILL_STEP = 512

EXIT_SECONDS = 5.0

# Where nothing states a limit, refuse nothing: above any context length in use.
UNKNOWN_CONTEXT_LENGTH = 1 << 20
# A template refuses by raising, or trips over a message it was not written for.
UNTEMPLATABLE = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
CONTEXT_LENGTH_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "model_max_length")


class Job(Struct, frozen=True):
    """One decode, waiting for the thread or running on it."""

    prompt: list[int]
    sampling: Sampling
    tools: Tools | None
    channel: Channel


class ReaderGoneError(Exception):
    """The channel was closed during prefill. Never leaves this module."""


class MlxEngine:
    """An `Engine` on mlx-lm. Await `load()` once; decodes then run one after another, in the order they came.

    Each generated token gives a piece or more, if only an empty `Text`, so a cancel is seen at the next token. An
    end-of-sequence token counts as one, as in mlx-lm: its pieces hold whatever was held back before it, mostly nothing.
    """

    def __init__(self, load: Load, *, prefill_step_size: int | None = None) -> None:
        self.context_length = UNKNOWN_CONTEXT_LENGTH
        self._load = load
        self._prefill_step_size = prefill_step_size or default_prefill_step_size()
        self._loaded: Future[TokenizerWrapper] = Future()
        self._loaded.set_running_or_notify_cancel()  # so that nobody who stops waiting cancels it
        self._thread = threading.Thread(target=self._run, name="mlx", daemon=True)
        self._lanes = Lanes()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Channel] = set()
        self._ended: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether the thread lives and takes decodes."""
        return self._thread.is_alive() and self._ended is None

    @property
    def is_decoding(self) -> bool:
        """Whether a decode is under way or waits for the thread."""
        return bool(self._open)

    async def load(self) -> None:
        """Load the model, on the engine's thread. Raises LoadError."""
        # An exit under a thread that computes aborts the process; a load may take longer than an exit should.
        atexit.register(self._leave, EXIT_SECONDS)
        self._thread.start()
        try:
            await asyncio.wrap_future(self._loaded)
        except LoadError:
            raise
        except Exception as error:
            text = f"The model could not be loaded: {type(error).__name__}."
            raise LoadError(text) from error

    async def tokenize(self, messages: list[dict[str, Any]], tools: Tools | None = None) -> list[int]:
        """Render chat messages and tools with the model's template. Raises TemplateError."""
        if self._ended:
            raise EngineError(self._ended)
        return await self._lanes.run(to_prompt, self.context_length, self._loaded.result(timeout=0), messages, tools)

    def decode(self, prompt: list[int], sampling: Sampling, tools: Tools | None = None) -> Channel:
        """Start decoding as soon as the thread is free."""
        channel = Channel()
        with self._lock:
            if self._ended:
                channel.close(DecodeError(self._ended))
            else:
                self._open.add(channel)
                self._jobs.put(Job(prompt, sampling, tools, channel))
        return channel

    async def close(self) -> None:
        """Break off every decode, wait for the thread and let go of the model."""
        await asyncio.to_thread(self._leave)
        atexit.unregister(self._leave)
        self._lanes.close()

    def _leave(self, seconds: float | None = None) -> None:
        self._end("The engine was closed.")
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # the readers must hear of it, whatever it is
            log.exception("The engine's thread died.")
            self._end("The engine's thread died.", error)
        finally:
            self._end("The model could not be loaded.")
            mx.clear_cache()
            # A process that exits soon after a thread has left its streams behind is aborted by MLX.
            mx.clear_streams()

    def _serve(self) -> None:
        try:
            model, tokenizer = self._load()
            mx.eval(model.parameters())
            self.context_length = context_length(model, tokenizer)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the load is awaited
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(tokenizer)
        while (job := self._jobs.get()) is not None:
            self._decode(model, tokenizer, job)
            with self._lock:
                self._open.discard(job.channel)

    def _decode(self, model: Any, tokenizer: TokenizerWrapper, job: Job) -> None:
        if job.channel.is_closed:
            return
        try:
            generate(model, tokenizer, job, self._prefill_step_size)
        except ReaderGoneError:
            return
        except Exception as error:
            log.exception("A decode broke off.")
            job.channel.close(to_decode_error("Decoding broke off.", error))
        job.channel.close()

    def _end(self, reason: str, cause: BaseException | None = None) -> None:
        with self._lock:
            self._ended = self._ended or reason
            for channel in self._open:
                channel.close(to_decode_error(reason, cause))
            self._open.clear()


def default_prefill_step_size() -> int:
    """Give how many prompt tokens to prefill between two looks at whether the reader is still there."""
    return GPU_PREFILL_STEP if mx.default_device().type == mx.DeviceType.gpu else CPU_PREFILL_STEP


def context_length(model: Any, tokenizer: TokenizerWrapper) -> int:
    """Find the longest context that neither the model's configuration nor its tokenizer forbids."""
    args = vars(model.args)
    configs = [args, args.get("text_config") or {}]
    stated = [config.get(name) for config in configs for name in CONTEXT_LENGTH_NAMES]
    length = next((limit for limit in stated if limit), UNKNOWN_CONTEXT_LENGTH)
    # Hugging Face writes 10**30 for "not known".
    return min(length, tokenizer.model_max_length or length)


def to_prompt(tokenizer: Any, messages: list[dict[str, Any]], tools: Tools | None = None) -> list[int]:
    """Render messages, and the tools they may call, as the tokens of a prompt that the assistant is to continue."""
    if not tokenizer.has_chat_template:
        text = "The model's tokenizer has no chat template."
        raise TemplateError(text)
    try:
        return list(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True))
    except UNTEMPLATABLE as error:
        reason = (str(error) or type(error).__name__).strip()
        raise TemplateError(reason.partition("\n")[0]) from error


def generate(model: Any, tokenizer: TokenizerWrapper, job: Job, prefill_step_size: int) -> None:
    """Put the pieces of one decode into its channel, until its end or until the channel is closed."""
    responses = stream_generate(
        model,
        tokenizer,
        job.prompt,
        max_tokens=job.sampling.max_tokens,
        sampler=to_sampler(job.sampling),
        prefill_step_size=prefill_step_size,
        prompt_progress_callback=lambda _done, _total: stop_if_closed(job.channel),
    )
    markers = Markers(tokenizer, job.prompt, job.tools)
    # Closed here and now: left to the garbage collector, it would give its stream back on another thread.
    with closing(responses):
        for response in responses:
            if not all(map(job.channel.put, markers.read(response.text))):
                return
    reason: Literal["stop", "length"] = "length" if response.finish_reason == "length" else "stop"
    finish = Finish(
        reason=reason,
        prompt_tokens=response.prompt_tokens,
        completion_tokens=response.generation_tokens,
        reasoning_tokens=markers.reasoning_tokens,
    )
    for piece in (*markers.end(reason), finish):
        job.channel.put(piece)


def stop_if_closed(channel: Channel) -> None:
    """Break out of a prefill nobody waits for."""
    if channel.is_closed:
        raise ReaderGoneError


def to_sampler(sampling: Sampling) -> Callable[[mx.array], mx.array]:
    """Make mlx-lm's sampler. It reads a `top_p` of 0 as 1, where what the API asks for is the likeliest token."""
    sampler: Callable[[mx.array], mx.array] = make_sampler(
        temp=sampling.temperature if sampling.top_p > 0 else 0, top_p=sampling.top_p
    )
    return sampler


def to_decode_error(text: str, cause: BaseException | None) -> DecodeError:
    """Chain a DecodeError to its cause."""
    error = DecodeError(text)
    error.__cause__ = cause
    if cause is not None:
        # The frames of its traceback hold the KV cache.
        traceback.clear_frames(cause.__traceback__)
    return error
