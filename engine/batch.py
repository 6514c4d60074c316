"""The decodes that run together on one model: they join and leave between steps, and leave their caches to later ones.

mlx-lm's `BatchGenerator` computes. A step gives each running decode its next token and prefills a chunk for those that
just came, so a long prompt delays nobody by more than a chunk.
"""

import logging
from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, GenerationBatch, make_stop_sequences
from mlx_lm.models.cache import KVCache, can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache
from msgspec import Struct

from engine.alone import LoneGenerator
from engine.channel import Channel
from engine.errors import to_decode_error
from engine.prompt_cache import Cache, PromptCache
from engine.sequence import Job, Reason, Sequence

log = logging.getLogger(__name__)


class Limits(Struct, frozen=True, kw_only=True):
    """How much a model may do at once: sequences in a batch, prompt tokens in a step, bytes of KV caches."""

    capacity: int
    prefill_step_size: int
    cache_bytes: int


class Batch:
    """Everything that runs on one model. For the model's own thread alone; `on_end` hears of each decode that left."""

    def __init__(self, model: Any, tokenizer: Any, limits: Limits, on_end: Callable[[Channel], None]) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._limits = limits
        self._on_end = on_end
        self._stops = make_stop_sequences(tokenizer)  # type: ignore[no-untyped-call]
        self._kept = PromptCache(limits.cache_bytes)
        self._cuts_anywhere = all(type(layer) is KVCache for layer in make_prompt_cache(model))
        self._running: dict[int, Sequence] = {}
        self._aside: list[tuple[Sequence, Cache]] = []
        self._generator = self._make_generator()

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing until a decode is added, or the reader of one set aside catches up."""
        return not self._running and all(sequence.job.channel.is_aside for sequence, _ in self._aside)

    def add(self, job: Job) -> None:
        """Let a decode join."""
        if job.channel.is_closed:
            self._on_end(job.channel)
            return
        sequence = Sequence(job, self._tokenizer)
        try:
            cache, sequence.cached_tokens = self._kept.fetch(job.owner, job.prompt)
            self._insert(sequence, cache, sequence.cached_tokens)
        except Exception as error:  # which is no reason to stop the others
            log.exception("A decode could not join the batch.")
            self._give_up(sequence, error)
            return
        job.channel.begin(sequence.cached_tokens)

    def step(self) -> None:
        """Let every decode get on by a token or by a chunk of its prompt."""
        self._let_go()
        self._set_aside()
        self._take_back()
        prefilling = sum(not sequence.is_prefilled for sequence in self._running.values())
        self._generator.prefill_step_size = max(1, self._limits.prefill_step_size // max(1, prefilling))
        prompts, answers = self._generator.next()
        for response in prompts:
            self._running[response.uid].is_prefilled = response.end_of_prompt
            if response.end_of_segment and not response.end_of_prompt and not self._cuts_anywhere:
                self._keep_prompt(response.uid)
        for response in answers:
            self._read(response)

    def survive(self, error: Exception) -> None:
        """Give up the decode that most likely broke a step, and begin the others again from the tokens they have."""
        sequences = list(self._running.values())
        self._running.clear()
        self._generator.close()
        self._kept.clear()
        mx.clear_cache()
        self._generator = self._make_generator()
        if sequences:
            culprit = max(sequences, key=_suspicion)
            sequences.remove(culprit)
            self._give_up(culprit, error)
        for sequence in sequences:
            sequence.rewind()
            self._insert(sequence, None, 0)

    def close(self) -> None:
        """Let go of what mlx-lm holds for the batch."""
        self._generator.close()

    def _make_generator(self) -> Any:
        stream = mx.default_stream(mx.default_device())
        if not is_batchable(self._model):
            return LoneGenerator(self._model, prefill_step_size=self._limits.prefill_step_size, stream=stream)
        return BatchGenerator(
            self._model,
            completion_batch_size=self._limits.capacity,
            prefill_batch_size=self._limits.capacity,
            prefill_step_size=self._limits.prefill_step_size,
            stream=stream,
        )

    def _insert(self, sequence: Sequence, cache: Cache | None, cached: int) -> None:
        sequence.is_prefilled = False
        (uid,) = self._generator.insert_segments(
            [self._to_segments(sequence.tokens, cached)],
            [sequence.room],
            [cache],
            [sequence.tokens[:cached]],
            [sequence.sampler],
            [sequence.processors],
            [self._stops],
        )
        self._running[uid] = sequence
        self._kept.shrink(self._limits.cache_bytes - self._generator.prompt_cache_nbytes)

    def _to_segments(self, tokens: list[int], cached: int) -> list[list[int]]:
        """Cut where a cache that cannot be cut later will be of use: before what opens the answer."""
        border = len(tokens)
        if not self._cuts_anywhere and self._tokenizer.has_thinking:
            start = self._tokenizer.rfind_think_start(tokens)
            border = start if start > cached else border
        return [tokens[cached:border], tokens[border:]]

    def _read(self, response: GenerationBatch.Response) -> None:
        sequence = self._running[response.uid]
        try:
            has_ended = sequence.read(response.token, response.logprobs, cast("Reason", response.finish_reason))
        except Exception as error:
            log.exception("A decode broke off.")
            self._drop(response.uid)
            self._give_up(sequence, error)
            return
        if response.finish_reason:
            del self._running[response.uid]
            self._keep(sequence, response.prompt_cache or [], response.all_tokens or [])
        elif has_ended:
            self._keep(sequence, *self._drop(response.uid))
        if has_ended:
            self._on_end(sequence.job.channel)

    def _let_go(self) -> None:
        for uid in [uid for uid, sequence in self._running.items() if sequence.job.channel.is_closed]:
            sequence = self._running[uid]
            self._keep_cut(sequence, *self._drop(uid))
            self._on_end(sequence.job.channel)

    def _set_aside(self) -> None:
        """Rest the decodes whose readers are behind, so that they neither fill memory nor hold up the others."""
        behind = [uid for uid, sequence in self._running.items() if sequence.job.channel.set_aside()]
        for uid in behind if self._cuts_anywhere else []:
            sequence = self._running[uid]
            cache, _ = self._drop(uid)
            # the last token has been computed, and the next one chosen, but not told
            trim_prompt_cache(cache, 1)
            sequence.rewind()
            self._aside.append((sequence, cache))

    def _take_back(self) -> None:
        for sequence, cache in [pair for pair in self._aside if not pair[0].job.channel.is_aside]:
            self._aside.remove((sequence, cache))
            cached = len(sequence.tokens) - 1
            if sequence.job.channel.is_closed:
                self._keep_cut(sequence, cache, sequence.tokens[:cached])
                self._on_end(sequence.job.channel)
            else:
                self._insert(sequence, cache, cached)

    def _drop(self, uid: int) -> tuple[Cache, list[int]]:
        del self._running[uid]
        cache, tokens = self._generator.remove([uid], return_prompt_caches=True)[uid]
        return cache or [], tokens

    def _keep(self, sequence: Sequence, cache: Cache, tokens: list[int]) -> None:
        channel, prompt_length = sequence.job.channel, len(sequence.job.prompt)
        self._kept.put(
            sequence.job.owner, tokens, cache, prompt_length=prompt_length, is_kept=lambda: channel.is_kept
        )  # fmt: skip

    def _keep_prompt(self, uid: int) -> None:
        cache, tokens = self._generator.extract_cache([uid])[uid]
        self._kept.put(self._running[uid].job.owner, list(tokens), cache)

    def _keep_cut(self, sequence: Sequence, cache: Cache, tokens: list[int]) -> None:
        """Keep what was prefilled of a decode that was cancelled."""
        spare = max(0, len(tokens) - len(sequence.job.prompt))
        if spare and can_trim_prompt_cache(cache):
            trim_prompt_cache(cache, spare)
            spare, tokens = 0, tokens[:-spare]
        if tokens and not spare:
            self._kept.put(sequence.job.owner, tokens, cache)

    def _give_up(self, sequence: Sequence, error: Exception) -> None:
        sequence.job.channel.close(to_decode_error("Decoding broke off.", error))
        self._on_end(sequence.job.channel)


def is_batchable(model: Any) -> bool:
    """Tell whether the model's caches can be merged into those of a batch."""
    return all(hasattr(layer, "merge") for layer in make_prompt_cache(model))


def _suspicion(sequence: Sequence) -> tuple[bool, bool, int]:
    """Whose processor broke is known; else memory runs out over a prompt that came in, and the longest one at that."""
    return sequence.error is not None, not sequence.is_prefilled, len(sequence.tokens)
