"""A batch whose steps a test takes, in its own thread, and readers whose pieces it takes out."""

import random

from engine.batch import Batch, Limits
from engine.channel import Channel
from engine.pieces import Finish, Sampling, Text
from engine.sequence import Job
from tests.engine.tiny import make_tokenizer


def greedy(max_tokens, **options):
    return Sampling(temperature=0, top_p=1, max_tokens=max_tokens, **options)


def make_endless_tokenizer():
    """Make a tokenizer that no random token ends an answer for."""
    tokenizer = make_tokenizer()
    tokenizer._eos_token_ids.clear()
    return tokenizer


def some_tokens(length, seed=0):
    return random.Random(seed).choices(range(256), k=length)  # noqa: S311


class Heard:
    """One decode: the pieces its reader took, and the tokens they were made of."""

    def __init__(self, job, sequence):
        self.channel = job.channel
        self.pieces = []
        self._job = job
        self._sequence = sequence

    @property
    def tokens(self):
        return self._sequence.tokens[len(self._job.prompt) :]

    @property
    def everything(self):
        return self._sequence.tokens

    @property
    def text(self):
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Text))

    @property
    def finish(self):
        assert isinstance(self.pieces[-1], Finish)
        return self.pieces[-1]

    @property
    def error(self):
        return self.channel._error and self.channel._error.__cause__

    def read(self):
        while self.channel._unread:
            self.pieces.append(self.channel._take())


class Stepped:
    """A batch, and how often it was stepped. What breaks a step it survives, as on an engine's thread."""

    def __init__(self, model, tokenizer=None, capacity=8, prefill_step_size=16, cache_bytes=1 << 30):
        limits = Limits(capacity=capacity, prefill_step_size=prefill_step_size, cache_bytes=cache_bytes)
        self.steps = 0
        self.ended = []
        self.breaks = []
        self.model = model
        self.batch = Batch(model, tokenizer or make_endless_tokenizer(), limits, self.ended.append)

    @property
    def kept(self):
        return self.batch.kept

    def decode(self, prompt, sampling, owner="", tools=None, unread=1 << 20):
        job = Job(prompt, sampling, tools, owner, Channel(capacity=unread))
        waiting = len(self.batch._waiting)
        self.batch.add(job)
        return Heard(job, self.batch._waiting[-1] if len(self.batch._waiting) > waiting else None)

    def step(self, times=1):
        for _ in range(times):
            self.steps += 1
            try:
                self.batch.step()
            except Exception as error:  # noqa: BLE001  as the engine's thread does
                self.breaks.append(error)
                self.batch.survive(error)

    def run(self, *heard):
        """Step until these have ended, and read them out."""
        while not all(one.channel._is_closed for one in heard):
            self.step()
            assert self.steps < 10_000
        for one in heard:
            one.read()
        return heard[0] if len(heard) == 1 else heard

    def answer(self, prompt, sampling, **options):
        return self.run(self.decode(prompt, sampling, **options))
