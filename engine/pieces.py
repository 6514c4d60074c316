"""What an engine takes and gives: messages and sampling in, pieces out."""

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

from msgspec import Struct


class Sampling(Struct, frozen=True, kw_only=True):
    """How to choose the next token. `max_tokens` counts generated tokens; temperature 0 is greedy."""

    temperature: float
    top_p: float
    max_tokens: int


class Text(Struct, frozen=True, tag="text"):
    """Decoded text of one or more tokens; empty while a character is still split over tokens."""

    text: str


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

    def processor(self) -> Processor:
        """Begin a decode."""


class Decoding(Protocol):
    """One running decode. Iterate it for its pieces, the last of which is `Finish`; a break raises EngineError."""

    def __aiter__(self) -> AsyncIterator[Piece]: ...

    def cancel(self) -> None:
        """Stop at the next token or prefill chunk. Safe to call at any time, and twice."""


class Engine(Protocol):
    """A model in memory. `context_length` is in tokens, prompt and answer together."""

    context_length: int

    @property
    def healthy(self) -> bool:
        """Whether the engine's thread is there to serve a decode."""

    async def load(self) -> None:
        """Load the model, once, before anything else is asked of it. Raises LoadError."""

    async def tokenize(self, messages: list[dict[str, Any]], tools: Tools | None = None) -> list[int]:
        """Render chat messages (`role`, `content`) and tools with the model's template. Raises TemplateError."""

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> Grammar:
        """Compile what the answer to a prompt is held to. Raises GrammarError."""

    def decode(
        self, prompt: list[int], sampling: Sampling, tools: Tools | None = None, *, grammar: Grammar | None = None
    ) -> Decoding:
        """Start decoding at once, on the engine's own thread. Without `tools`, what looks like a call is text."""

    async def close(self) -> None:
        """Stop every decode and let go of the model."""
