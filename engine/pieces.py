"""What an engine takes and gives: messages and sampling in, pieces out."""

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

from msgspec import Struct


class Sampling(Struct, frozen=True, kw_only=True):
    """How to choose the next token. `max_tokens` counts generated tokens; temperature 0 is greedy.

    A `seed` makes the choices repeatable, whatever else decodes. Penalties are subtracted from the logits of tokens the
    answer has already, once (presence) or each time (frequency). The answer ends before the first of the `stop` texts.
    `top_logprobs` asks for each token's log probability and so many of the likeliest others; None asks for neither.
    """

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


class LikelyToken(Struct, frozen=True):
    """A token that could have been chosen, as text and as bytes, and the logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(LikelyToken, frozen=True):
    """The token that was chosen, and the likeliest ones at its place, the likeliest first."""

    top_logprobs: list[LikelyToken]


class Text(Struct, frozen=True, tag="text"):
    """Decoded text of one or more tokens; `logprobs` tells of those tokens if it was asked for."""

    text: str
    logprobs: list[ChosenToken] = []


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """Decoded text that is the model's reasoning, without its markers."""

    text: str


class ToolCall(Struct, frozen=True, tag="tool_call", kw_only=True):
    """One whole call of a tool. `arguments` is JSON text; `call_id` is the model's own, if it gave one."""

    name: str
    arguments: str
    call_id: str | None = None


class Finish(Struct, frozen=True, tag="finish", kw_only=True):
    """The last piece: why decoding ended, and its counts in tokens. `error` is a model that gave up by itself."""

    reason: Literal["stop", "length", "error"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


Piece = Text | Reasoning | ToolCall | Finish
# As chat completions have them: {type: function, function: {name, description, parameters}}, or
# {type: custom, custom: {name, description, format: {grammar: {syntax, definition}}}}.
Tools = list[dict[str, Any]]


class Constraint(Struct, frozen=True, kw_only=True):
    """What an answer is held to: text of a JSON schema, or free text without one, and which calls it may or must make.

    Where a tool of `lenient` has a schema that cannot be enforced whole, what can be is.
    """

    schema: dict[str, Any] | None = None
    is_lenient: bool = False
    may_call: tuple[str, ...] = ()
    must_call: bool = False
    only_one: bool = False
    lenient: frozenset[str] = frozenset()


class Processor(Protocol):
    """One decode's logits processor, as mlx-lm calls it: all tokens so far, and the logits of the next."""

    failure: str | None  # set once the grammar has broken off; the answer then ends, and is to fail

    def __call__(self, tokens: Any, logits: Any) -> Any: ...


class Grammar(Protocol):
    """A compiled constraint, for any number of decodes."""

    def processor(self, prompt_length: int | None = None) -> Processor:
        """Begin a decode, or go on with one that has tokens beyond its prompt."""


class Decoding(Protocol):
    """One running decode. Iterate it for its pieces, the last of which is `Finish`; a break raises EngineError."""

    def __aiter__(self) -> AsyncIterator[Piece]: ...

    async def begun(self) -> int:
        """Wait until the model has taken up the prompt, and tell how many of its tokens were cached."""

    def keep(self) -> None:
        """Say that the answer was delivered: a prompt that goes on from it may then find it in the cache."""

    def cancel(self) -> None:
        """Stop at the next token or prefill chunk. Safe to call at any time, and twice."""


class CacheUse(Struct, frozen=True):
    """How full a pool of KV caches is, and how many bytes it may hold."""

    entries: int
    bytes: int
    limit: int


class Engine(Protocol):
    """A model in memory. `context_length` is in tokens, prompt and answer together; `capacity` decodes run together."""

    context_length: int
    capacity: int

    @property
    def healthy(self) -> bool:
        """Whether the engine's thread is there to serve a decode, and gets on with those it has."""

    @property
    def step_seconds(self) -> float:
        """How long the step that the engine computes now has taken; 0 while it has nothing to do."""

    @property
    def cache(self) -> CacheUse | None:
        """How full the pool of KV caches is; None while there is none."""

    async def load(self) -> None:
        """Load the model before anything else is asked of it, or again once it is not healthy. Raises LoadError."""

    async def tokenize(
        self, messages: list[dict[str, Any]], tools: Tools | None = None, effort: str | None = None
    ) -> list[int]:
        """Render chat messages (`role`, `content`) and tools with the model's template. Raises TemplateError.

        `effort` is how much to reason, from `none` to `max`; a template without such a switch ignores it.
        """

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> Grammar:
        """Compile what the answer to a prompt is held to. Raises GrammarError."""

    def decode(
        self,
        prompt: list[int],
        sampling: Sampling,
        tools: Tools | None = None,
        *,
        grammar: Grammar | None = None,
        owner: str = "",
    ) -> Decoding:
        """Start decoding at once, on the engine's own thread. Without `tools`, what looks like a call is text.

        What was computed for one `owner` is never reused for another.
        """

    async def close(self) -> None:
        """Stop every decode and let go of the model."""
