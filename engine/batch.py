"""The decodes that run together on one model: they join and leave between steps, and leave their caches to later ones.

mlx-lm's `BatchGenerator` computes. A step gives each running decode its next token and prefills a chunk for those that
just came, so a long prompt delays nobody by more than a chunk.
"""

import logging
from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, GenerationBatch, make_stop_sequences
from mlx_lm.models.cache import KVCache, make_prompt_cache, trim_prompt_cache
from msgspec import Struct

from engine.alone import LoneGenerator
from engine.channel import Channel
from engine.errors import to_decode_error
from engine.prompt_cache import Cache, PromptCache, can_cut, parts
from engine.sequence import Job, Reason, Sequence

log = logging.getLogger(__name__)


# mlx-lm masks a rotating cache wrongly in a chunk that follows one of a single token, so no such chunk comes before the
# last one of a prompt: all are even.
EVEN = 2

# Chunks of several prompts are computed in one go, which takes far less than one after another would, but longer than
# one: so many fill a step.
TOGETHER = 4


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
        self.kept = PromptCache(limits.cache_bytes)
        self._cuts_anywhere = all(type(layer) is KVCache for layer in parts(make_prompt_cache(model)))
        self._is_batchable = is_batchable(model)
        self._capacity = limits.capacity if self._is_batchable else 1
        self._running: dict[int, Sequence] = {}
        self._waiting: list[Sequence] = []
        self._generator = self._make_generator()

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing until a decode is added, or the reader of one set aside catches up."""
        return not self._running and all(sequence.job.channel.is_aside for sequence in self._waiting)

    def add(self, job: Job) -> None:
        """Let a decode join with one of the next steps."""
        try:
            self._waiting.append(Sequence(job, self._tokenizer))
        except Exception as error:  # which is no reason to stop the others
            log.exception("A decode could not begin.")
            self._give_up(job.channel, error)

    def step(self) -> None:
        """Let every decode get on by a token or by a chunk of its prompt."""
        self._let_go()
        self._set_aside()
        self._take_in()
        prefilling = sum(not sequence.is_prefilled for sequence in self._running.values())
        step = self._limits.prefill_step_size
        self._generator.prefill_step_size = to_chunk(min(step, TOGETHER * step // max(1, prefilling)))
        prompts, answers = self._generator.next()
        for response in prompts:
            self._running[response.uid].is_prefilled = response.end_of_prompt
            if response.end_of_segment and not response.end_of_prompt and not self._cuts_anywhere:
                self._keep_prompt(response.uid)
        for response in answers:
            self._read(response)

    def survive(self, error: Exception) -> None:
        """Give up the decode that broke a step, and begin the others again from the tokens they have.

        Where any could have done it, all begin again, one after another: so the next break tells.
        """
        running = list(self._running.values())
        self._running.clear()
        self._generator.close()
        self.kept.clear()
        for sequence in self._waiting:
            sequence.cache = None
        mx.clear_cache()
        self._generator = self._make_generator()
        culprit = find_culprit(running)
        if culprit:
            running.remove(culprit)
            self._give_up(culprit.job.channel, error)
        for sequence in running:
            sequence.rewind(None)
            sequence.breaks += 1
        self._waiting[:0] = running

    def close(self) -> None:
        """Let go of what mlx-lm holds for the batch."""
        self._generator.close()

    def _make_generator(self) -> Any:
        stream = mx.default_stream(mx.default_device())
        if not self._is_batchable:
            return LoneGenerator(self._model, prefill_step_size=self._limits.prefill_step_size, stream=stream)
        return BatchGenerator(
            self._model,
            completion_batch_size=self._capacity,
            prefill_batch_size=self._capacity,
            prefill_step_size=to_chunk(self._limits.prefill_step_size),
            stream=stream,
        )

    def _take_in(self) -> None:
        """Let those that wait join, in their order; after a break, each only once those before it have decoded."""
        ready = [sequence for sequence in self._waiting if not sequence.job.channel.is_aside]
        room = self._capacity - len(self._running)
        if any(sequence.breaks for sequence in ready):
            room = min(room, all(sequence.is_settled for sequence in self._running.values()))
        for sequence in ready[:room]:
            self._waiting.remove(sequence)
            try:
                self._insert(sequence)
            except Exception as error:
                log.exception("A decode could not join the batch.")
                self._give_up(sequence.job.channel, error)

    def _insert(self, sequence: Sequence) -> None:
        tokens, owner = sequence.tokens, sequence.job.owner
        cache, cached = (sequence.cache, len(tokens) - 1) if sequence.cache else self.kept.fetch(owner, tokens)
        (uid,) = self._generator.insert_segments(
            [self._to_segments(tokens, cached)],
            [sequence.room],
            [cache],
            [tokens[:cached]],
            [sequence.sampler],
            [sequence.processors],
            [self._stops],
        )
        self._running[uid] = sequence
        sequence.join(cached)
        self._fit()

    def _to_segments(self, tokens: list[int], cached: int) -> list[list[int]]:
        """Cut where a cache that cannot be cut later will be of use: before what opens the answer."""
        border = len(tokens)
        if not self._cuts_anywhere and self._tokenizer.has_thinking:
            start = self._tokenizer.rfind_think_start(tokens)
            border = start - (start - cached) % EVEN if start > cached else border
        return [tokens[cached:border], tokens[border:]]

    def _read(self, response: GenerationBatch.Response) -> None:
        sequence = self._running[response.uid]
        try:
            has_ended = sequence.read(response.token, response.logprobs, cast("Reason", response.finish_reason))
        except Exception as error:
            log.exception("A decode broke off.")
            self._give_up(sequence.job.channel, error)
            self._leave(response)
            return
        if has_ended:
            self._on_end(sequence.job.channel)
            self._keep(sequence, *self._leave(response))

    def _leave(self, response: GenerationBatch.Response) -> tuple[Cache, list[int]]:
        if not response.finish_reason:
            return self._drop(response.uid)
        del self._running[response.uid]
        return response.prompt_cache or [], response.all_tokens or []

    def _let_go(self) -> None:
        for uid in [uid for uid, sequence in self._running.items() if sequence.job.channel.is_closed]:
            sequence = self._running[uid]
            self._on_end(sequence.job.channel)
            self._keep_cut(sequence, *self._drop(uid))
        for sequence in [sequence for sequence in self._waiting if sequence.job.channel.is_closed]:
            self._waiting.remove(sequence)
            self._on_end(sequence.job.channel)
            self._keep_cut(sequence, sequence.cache or [], sequence.tokens[:-1])

    def _set_aside(self) -> None:
        """Rest the decodes whose readers are behind, so that they neither fill memory nor hold up the others."""
        for uid, sequence in list(self._running.items()) if self._cuts_anywhere else []:
            if not sequence.is_prefilled or not sequence.job.channel.set_aside():
                continue
            cache, _ = self._drop(uid)
            # the last token told has been computed, and must be again: what it led to is lost
            trim_prompt_cache(cache, 1)
            mx.eval([layer.state for layer in cache])
            sequence.rewind(cache)
            self._waiting.insert(0, sequence)

    def _drop(self, uid: int) -> tuple[Cache, list[int]]:
        del self._running[uid]
        cache, tokens = self._generator.remove([uid], return_prompt_caches=True)[uid]
        return cache or [], tokens

    def _keep(self, sequence: Sequence, cache: Cache, tokens: list[int]) -> None:
        channel = sequence.job.channel
        self._put(sequence, cache, tokens, prompt_length=len(sequence.job.prompt), is_kept=lambda: channel.is_kept)

    def _keep_prompt(self, uid: int) -> None:
        cache, tokens = self._generator.extract_cache([uid])[uid]
        self._put(self._running[uid], cache, list(tokens))

    def _keep_cut(self, sequence: Sequence, cache: Cache, tokens: list[int]) -> None:
        """Keep what was prefilled of a decode that was cancelled."""
        spare = max(0, len(tokens) - len(sequence.job.prompt))
        if spare and can_cut(cache):
            trim_prompt_cache(cache, spare)
            spare, tokens = 0, tokens[:-spare]
        if cache and tokens and not spare:
            self._put(sequence, cache, tokens)

    def _put(self, sequence: Sequence, cache: Cache, tokens: list[int], **conditions: Any) -> None:
        try:
            self.kept.put(sequence.job.owner, tokens, cache, **conditions)
            self._fit()
        except Exception:  # for want of memory, which is no fault of those that run
            log.exception("A cache could not be kept.")
            self.kept.clear()

    def _fit(self) -> None:
        """Let caches go that memory is too short for, beside those in use."""
        aside = sum(layer.nbytes for sequence in self._waiting for layer in sequence.cache or [])
        self.kept.shrink(self._limits.cache_bytes - self._generator.prompt_cache_nbytes - aside)

    def _give_up(self, channel: Channel, error: Exception) -> None:
        channel.close(to_decode_error("Decoding broke off.", error))
        self._on_end(channel)


def is_batchable(model: Any) -> bool:
    """Tell whether the model's caches can be merged into those of a batch."""
    return all(hasattr(layer, "merge") for layer in make_prompt_cache(model))


def find_culprit(running: list[Sequence]) -> Sequence | None:
    """Tell which decode broke a step, unless that is to be found out.

    A processor tells whose it is. Else what is new is suspect, for the others have decoded as they are; and memory
    runs out over the longest.
    """
    known = [sequence for sequence in running if sequence.error]
    suspects = known or [sequence for sequence in running if not sequence.is_settled] or running
    culprit = max(suspects, key=lambda sequence: (sequence.breaks, len(sequence.tokens)), default=None)
    return culprit if culprit and (known or len(suspects) == 1 or culprit.breaks) else None


def to_chunk(tokens: int) -> int:
    """Give the most tokens of a prompt to prefill at once, of so many that may be."""
    return max(EVEN, tokens - tokens % EVEN)
