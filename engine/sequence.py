"""One decode in the batch: its tokens so far, and the pieces its reader gets of them."""

from typing import Any, Literal, NamedTuple

import mlx.core as mx
from mlx_lm.generate import TextStateMachine

from engine import pieces
from engine.channel import Channel
from engine.logprobs import to_chosen
from engine.markers import Markers
from engine.pieces import ChosenToken, Finish, Grammar, Piece, Sampling, Text, Tools
from engine.sampling import Processor, SeededSampler, to_processors, to_sampler

NORMAL = "normal"
Reason = Literal["stop", "length"] | None


class Job(NamedTuple):
    """What one decode was asked for, and where its pieces go."""

    prompt: list[int]
    sampling: Sampling
    tools: Tools | None
    owner: str
    channel: Channel
    grammar: Grammar | None = None


class Sequence:
    """The state of one decode that outlives its place in a batch: it can be taken out, and put in again later."""

    def __init__(self, job: Job, tokenizer: Any) -> None:
        self.job = job
        self.tokens = list(job.prompt)
        self.cached_tokens = 0
        self.is_prefilled = False
        self.error: Exception | None = None
        self.sampler = to_sampler(job.sampling)
        self.processors: list[Processor] = []
        self._mask: pieces.Processor | None = None
        self.rewind()
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer
        self._markers = Markers(tokenizer, job.prompt, job.tools)
        self._stops = Stops(job.sampling.stop)
        self._chosen: list[ChosenToken] = []

    @property
    def generated(self) -> int:
        """How many tokens the answer has so far."""
        return len(self.tokens) - len(self.job.prompt)

    @property
    def room(self) -> int:
        """How many tokens the answer may still take."""
        return self.job.sampling.max_tokens - self.generated

    def rewind(self) -> None:
        """Be ready to choose the token that follows those told, though a batch may have chosen further."""
        sampling, prompt_length = self.job.sampling, len(self.job.prompt)
        self._mask = self.job.grammar.processor(prompt_length) if self.job.grammar else None
        processors = to_processors(sampling, prompt_length)
        if self._mask:
            processors.append(self._mask)
        self.processors = [self._watched(processor) for processor in processors]
        if isinstance(self.sampler, SeededSampler):
            self.sampler.place = self.generated

    def read(self, token: int, logprobs: mx.array, reason: Reason) -> bool:
        """Tell the reader of one more token; a `reason` means that it was the last. Gives whether the answer ended."""
        self.tokens.append(token)
        self._choose(token, logprobs, reason)
        self._tell(self._markers.read(self._decode(token, reason)))
        if self._stops.is_met:
            reason = "stop"
        if reason:
            self._end(reason)
        return reason is not None

    def _decode(self, token: int, reason: Reason) -> str:
        if reason != "stop":  # an end-of-sequence token shows nothing
            self._detokenizer.add_token(token)
        if reason:
            self._detokenizer.finalize()
        return str(self._detokenizer.last_segment)

    def _choose(self, token: int, logprobs: mx.array, reason: Reason) -> None:
        likeliest = self.job.sampling.top_logprobs
        if likeliest is not None and reason != "stop":
            self._chosen.append(to_chosen(self._tokenizer, token, logprobs, likeliest))

    def _tell(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Text):
                self._say(self._stops.read(piece.text))
            elif not self._stops.is_met:
                self._say(self._stops.flush())
                self._chosen.clear()  # what was reasoning, or a call
                self.job.channel.put(piece)

    def _say(self, text: str) -> None:
        if text:
            chosen, self._chosen = self._chosen, []
            self.job.channel.put(Text(text, chosen))

    def _end(self, reason: Literal["stop", "length"]) -> None:
        if not self._stops.is_met:
            self._tell(self._markers.end(reason))
            self._say(self._stops.flush())
        finish = Finish(
            reason="error" if self._mask and self._mask.failure else reason,
            prompt_tokens=len(self.job.prompt),
            completion_tokens=self.generated,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self._markers.reasoning_tokens,
        )
        self.job.channel.put(finish)
        self.job.channel.close()

    def _watched(self, processor: Processor) -> Processor:
        """Have a processor that breaks say whose it is: the batch only learns that something broke."""

        def watched(tokens: mx.array, logits: mx.array) -> mx.array:
            try:
                return processor(tokens, logits)
            except Exception as error:
                self.error = error
                raise

        return watched


class Stops:
    """Holds text back while it may become one of the stop texts, which end the answer and are not part of it."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        machine = TextStateMachine({NORMAL: [(text, None) for text in texts]})  # type: ignore[no-untyped-call]
        self._at = machine.make_state(NORMAL)  # type: ignore[no-untyped-call]

    @property
    def is_met(self) -> bool:
        """Whether a stop text has come."""
        return self._at[0] is None

    def read(self, text: str) -> str:
        """Give the text that is known not to be a stop text."""
        if self.is_met:
            return ""
        self._at, segments = TextStateMachine.split(self._at, text)  # type: ignore[no-untyped-call]
        return str(segments[0][1])

    def flush(self) -> str:
        """Give what was held back."""
        if self.is_met:
            return ""
        self._at, rest, _ = TextStateMachine.flush(self._at)  # type: ignore[no-untyped-call]
        return str(rest)
