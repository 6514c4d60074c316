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


class Finish(Struct, frozen=True, tag="finish", kw_only=True):
    """The last piece: why decoding ended, and its counts in tokens."""

    reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


Piece = Text | Finish


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

    async def tokenize(self, messages: list[dict[str, Any]]) -> list[int]:
        """Render chat messages (`role`, `content`) with the model's template. Raises TemplateError."""

    def decode(self, prompt: list[int], sampling: Sampling) -> Decoding:
        """Start decoding at once, on the engine's own thread."""

    async def close(self) -> None:
        """Stop every decode and let go of the model."""
