"""From sampling settings to mlx-lm's samplers and logits processors."""

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import apply_top_p, make_logits_processors, make_sampler

from engine.pieces import Sampling

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]

SEEDS = 1 << 64
COLDEST = 1e-3  # below, float16 overflows, and a token half as likely as the likeliest comes once in 2**1000


class SeededSampler:
    """Chooses by the seed and the token's `place` in the answer, so that nothing which decodes beside it matters.

    mlx-lm's samplers all draw from one stream of random numbers, in the order in which they happen to be called.
    """

    def __init__(self, seed: int, temperature: float, top_p: float) -> None:
        self.place = 0
        self._seed = seed % SEEDS
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Choose one token for each row of log probabilities."""
        (bits,) = np.random.SeedSequence([self._seed, self.place]).generate_state(1, np.uint64)
        self.place += 1
        if self._top_p < 1:
            logprobs = apply_top_p(logprobs, self._top_p)
        return mx.random.categorical(logprobs * (1 / self._temperature), key=mx.random.key(int(bits)))


def to_sampler(sampling: Sampling) -> Sampler:
    """Make the sampler of one decode; those of equal settings without a seed share one, which mlx-lm calls once."""
    # mlx-lm reads a top_p of 0 as 1, where what the API asks for is the likeliest token
    is_greedy = sampling.temperature < COLDEST or sampling.top_p == 0
    if is_greedy or sampling.seed is None:
        return _shared_sampler(0.0 if is_greedy else sampling.temperature, sampling.top_p)
    return SeededSampler(sampling.seed, sampling.temperature, sampling.top_p)


@lru_cache(maxsize=64)
def _shared_sampler(temperature: float, top_p: float) -> Sampler:
    sampler: Sampler = make_sampler(temp=temperature, top_p=top_p)
    return sampler


def to_processors(sampling: Sampling, prompt_length: int) -> list[Processor]:
    """Make the penalties of one decode; they look at the whole answer, and not at the prompt."""
    penalties: list[Processor] = make_logits_processors(
        presence_penalty=sampling.presence_penalty,
        presence_context_size=sampling.max_tokens,
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=sampling.max_tokens,
    )
    return [_of_answer(penalty, prompt_length) for penalty in penalties]


def _of_answer(penalty: Processor, prompt_length: int) -> Processor:
    return lambda tokens, logits: penalty(tokens[prompt_length:], logits)
