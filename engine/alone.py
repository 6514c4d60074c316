"""For models whose caches cannot be merged into a batch: what a sequence that decodes alone gets instead."""

import copy
from collections.abc import Generator
from typing import Any, Literal

import mlx.core as mx
from mlx_lm.generate import GenerationBatch, PromptProcessingBatch, StopSequences, generate_step
from mlx_lm.models.cache import make_prompt_cache
from msgspec import Struct

from engine.sampling import Processor, Sampler

Responses = tuple[list[PromptProcessingBatch.Response], list[GenerationBatch.Response]]
Caches = dict[int, tuple[list[Any], list[int]]]


class Lone(Struct, eq=False):
    """One sequence: the segments of its prompt that are left, the last of one token, and what its cache holds."""

    uid: int
    segments: list[list[int]]
    prompt_length: int
    max_tokens: int
    cache: list[Any]
    tokens: list[int]
    sampler: Sampler
    processors: list[Processor]
    matcher: StopSequences.Matcher
    steps: Generator[Any, None, None] | None = None
    generated: int = 0


class LoneGenerator:
    """Has of mlx-lm's `BatchGenerator` what the batch uses, for one sequence at a time."""

    def __init__(self, model: Any, *, prefill_step_size: int, stream: Any) -> None:
        self.prefill_step_size = prefill_step_size
        self._model = model
        self._stream = stream
        self._lone: Lone | None = None
        self._count = 0

    @property
    def prompt_cache_nbytes(self) -> int:
        """The size of the cache in use, in bytes."""
        return sum(layer.nbytes for layer in self._lone.cache) if self._lone else 0

    def insert_segments(self, segments: list[list[list[int]]], *options: list[Any]) -> list[int]:
        """Take a sequence: of its segments, most tokens, cache, tokens in it, sampler, processors and stops a list."""
        (parts,), *rest = segments, *options
        ((max_tokens,), (cache,), (tokens,), (sampler,), (processors,), (stops,)) = rest
        *whole, last = [segment for segment in parts if segment] or [[]]
        if not last or max_tokens <= 0:
            msg = "The prompt is empty, or there is no room for an answer."
            raise ValueError(msg)
        self._count += 1
        self._lone = Lone(
            uid=self._count,
            segments=[segment for segment in (*whole, last[:-1], last[-1:]) if segment],
            prompt_length=sum(map(len, parts)),
            max_tokens=max_tokens,
            cache=cache or make_prompt_cache(self._model),
            tokens=tokens,
            sampler=sampler,
            processors=processors,
            matcher=stops.matcher(),
        )
        return [self._count]

    def extract_cache(self, uids: list[int]) -> Caches:
        """Copy the cache of the sequence, and tell the tokens in it."""
        return {
            lone.uid: (copy.deepcopy(lone.cache), lone.tokens) for lone in [self._lone] if lone and lone.uid in uids
        }

    def remove(self, uids: list[int], return_prompt_caches: bool = False) -> Caches:  # noqa: FBT001, FBT002  mlx-lm's
        """Drop the sequence."""
        removed = self.extract_cache(uids) if return_prompt_caches else {}
        self._lone = None
        return removed

    def next(self) -> Responses:
        """Prefill one chunk of the sequence, or give its next token."""
        if self._lone is None:
            return [], []
        with mx.stream(self._stream):
            if len(self._lone.segments) > 1:
                return [self._prefill(self._lone)], []
            return [], [self._step(self._lone)]

    def close(self) -> None:
        """Drop the sequence."""
        self._lone = None

    def _prefill(self, lone: Lone) -> PromptProcessingBatch.Response:
        segment = lone.segments[0]
        chunk, lone.segments[0] = segment[: self.prefill_step_size], segment[self.prefill_step_size :]
        self._model(mx.array([chunk]), cache=lone.cache)
        mx.eval([layer.state for layer in lone.cache])
        mx.clear_cache()
        lone.tokens += chunk
        if is_end := not lone.segments[0]:
            del lone.segments[0]
        left = sum(map(len, lone.segments))
        return PromptProcessingBatch.Response(
            lone.uid, (lone.prompt_length - left, lone.prompt_length), is_end, end_of_prompt=False
        )

    def _step(self, lone: Lone) -> GenerationBatch.Response:
        steps = lone.steps = lone.steps or self._begin(lone)
        token, logprobs = next(steps)
        lone.tokens.append(token)
        lone.generated += 1
        reason: Literal["stop", "length"] | None = "length" if lone.generated >= lone.max_tokens else None
        if lone.matcher.advance(token):
            reason = "stop"
        if reason:
            self._lone = None
        held = (lone.cache, lone.tokens) if reason else (None, None)
        return GenerationBatch.Response(lone.uid, token, logprobs, reason, *held)

    def _begin(self, lone: Lone) -> Generator[Any, None, None]:
        (last,) = lone.segments
        processors = [_after(list(lone.tokens), processor) for processor in lone.processors]
        lone.tokens += last
        return generate_step(
            mx.array(last),
            self._model,
            self._stream,
            max_tokens=lone.max_tokens,
            sampler=lone.sampler,
            logits_processors=processors,
            prompt_cache=lone.cache,
        )


def _after(tokens: list[int], processor: Processor) -> Processor:
    """Show a processor the tokens of the cached prompt too, as the batch does."""
    earlier = mx.array(tokens, mx.uint32)
    return lambda later, logits: processor(mx.concatenate([earlier, later]), logits)
