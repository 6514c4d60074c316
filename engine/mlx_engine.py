"""The engine that runs a model with mlx-lm, on a thread of its own.

Import this only after the fast BLAS is loaded: it imports MLX, which binds to the first BLAS it finds.
"""

import asyncio
import atexit
from typing import Any

import mlx.core as mx
from mlx_lm.tokenizer_utils import TokenizerWrapper

from engine.batch import Limits
from engine.channel import Channel
from engine.errors import EngineError, LoadError, to_decode_error
from engine.grammar import CompiledGrammar, Compiler
from engine.lanes import Lanes
from engine.pieces import CacheUse, Constraint, Grammar, Sampling, Tools
from engine.sequence import Job
from engine.templates import UNKNOWN_CONTEXT_LENGTH, to_prompt
from engine.worker import Load, Loaded, Worker

# A prefill can be cancelled only between chunks. On two cores, 16 tokens of a 135M model take 0.15 s, and 64, read half
# as fast again, 0.4 s. A GPU needs long chunks to be busy, but mlx-lm's 2048 take seconds with a model of some size.
CPU_PREFILL_STEP = 16
GPU_PREFILL_STEP = 512

CAPACITY = 8
CACHE_BYTES = 1 << 30
STALL_SECONDS = 120.0
EXIT_SECONDS = 5.0


class MlxEngine:
    """An `Engine` on mlx-lm. Await `load()` first; decodes then run together, as many as `capacity`.

    A step of the batch that takes `stall_seconds` is taken for a hang: the engine is then not healthy.
    """

    def __init__(
        self,
        load: Load,
        *,
        capacity: int = CAPACITY,
        cache_bytes: int = CACHE_BYTES,
        prefill_step_size: int | None = None,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.context_length = UNKNOWN_CONTEXT_LENGTH
        self.capacity = capacity
        self._load = load
        self._limits = Limits(
            capacity=capacity,
            cache_bytes=cache_bytes,
            prefill_step_size=prefill_step_size or default_prefill_step_size(),
        )
        self._stall_seconds = stall_seconds
        self._worker = Worker(load, self._limits)
        self._lanes = Lanes()
        self._compiler: Compiler | None = None

    @property
    def healthy(self) -> bool:
        """Whether the thread lives, takes decodes and gets on with them."""
        return self._worker.healthy and self._worker.step_seconds < self._stall_seconds

    @property
    def step_seconds(self) -> float:
        """How long the step that the thread computes now has taken; 0 while there is nothing to do."""
        return self._worker.step_seconds

    @property
    def cache(self) -> CacheUse | None:
        """How full the pool of KV caches is; None while no model is loaded."""
        return self._worker.cache

    @property
    def is_decoding(self) -> bool:
        """Whether a decode is under way or waits for the thread."""
        return self._worker.is_decoding

    async def load(self) -> None:
        """Load the model, on the engine's thread; after a breakdown, on a new one. Raises LoadError."""
        if self._worker.thread.ident is not None:
            self._worker.end("The engine's thread stood still.")
            self._lanes.close()
            self._worker, self._compiler, self._lanes = Worker(self._load, self._limits), None, Lanes()
        # An exit under a thread that computes aborts the process; a load may take longer than an exit should.
        atexit.register(self._leave, EXIT_SECONDS)
        self._worker.thread.start()
        worker = self._worker
        loaded = await _loaded(worker)
        if worker.ended:
            raise LoadError(worker.ended)
        self.context_length = loaded.context_length
        self.capacity = self._limits.capacity if loaded.is_batchable else 1

    async def tokenize(
        self, messages: list[dict[str, Any]], tools: Tools | None = None, effort: str | None = None
    ) -> list[int]:
        """Render chat messages and tools with the model's template. Raises TemplateError."""
        tokenizer = await self._tokenizer()
        return await self._lanes.run(to_prompt, self.context_length, tokenizer, messages, tools, effort)

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> CompiledGrammar:
        """Compile what the answer to a prompt is held to. Raises GrammarError."""
        return await self._lanes.do(self._compile, await self._tokenizer(), prompt, constraint, tools)

    def decode(
        self,
        prompt: list[int],
        sampling: Sampling,
        tools: Tools | None = None,
        *,
        grammar: Grammar | None = None,
        owner: str = "",
    ) -> Channel:
        """Start decoding with the next step of the batch."""
        worker = self._worker
        channel = Channel(worker.wake)
        if not self.healthy:
            channel.close(to_decode_error(worker.ended or "The engine's thread stands still."))
        else:
            worker.submit(Job(prompt, sampling, tools, owner, channel, grammar))
        return channel

    async def close(self) -> None:
        """Break off every decode, wait for the thread and let go of the model."""
        await asyncio.to_thread(self._leave, self._stall_seconds)  # a thread that hangs is left behind
        atexit.unregister(self._leave)
        self._lanes.close()

    async def _tokenizer(self) -> TokenizerWrapper:
        if self._worker.ended:
            raise EngineError(self._worker.ended)
        return (await _loaded(self._worker)).tokenizer

    def _compile(
        self, tokenizer: TokenizerWrapper, prompt: list[int], constraint: Constraint, tools: Tools | None
    ) -> CompiledGrammar:
        if self._compiler is None:
            self._compiler = Compiler(tokenizer)
        return self._compiler.compile(prompt, constraint, tools)

    def _leave(self, seconds: float | None = None) -> None:
        self._worker.end("The engine was closed.")
        if self._worker.thread.ident is not None:
            self._worker.thread.join(seconds)


async def _loaded(worker: Worker) -> Loaded:
    try:
        return await asyncio.wrap_future(worker.loaded)
    except LoadError:
        raise
    except Exception as error:
        text = f"The model could not be loaded: {type(error).__name__}."
        raise LoadError(text) from error


def default_prefill_step_size() -> int:
    """Give how many prompt tokens to prefill between two looks at who came and who left."""
    return GPU_PREFILL_STEP if mx.default_device().type == mx.DeviceType.gpu else CPU_PREFILL_STEP
