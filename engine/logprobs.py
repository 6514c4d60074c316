"""From a row of log probabilities to the tokens a client asked to see."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import mlx.core as mx
from mlx_lm.tokenizer_utils import SPMStreamingDetokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.pieces import ChosenToken, LikelyToken

LEAST = -9999.0  # what the API writes for a token that cannot be chosen; JSON has no minus infinity
SPACE = "\N{LOWER ONE EIGHTH BLOCK}".encode()  # how SentencePiece spells it


def to_chosen(tokenizer: Any, token: int, logprobs: mx.array, likeliest: int) -> ChosenToken:
    """Tell of the chosen token, and of the `likeliest` ones at its place, the likeliest first."""
    logprobs = logprobs.astype(mx.float32)
    logprobs -= mx.logsumexp(logprobs)  # a model in half precision leaves them up to some percent off
    ids: list[int] = []
    if likeliest := min(likeliest, logprobs.size):
        found = mx.argpartition(-logprobs, kth=likeliest - 1)[:likeliest]
        ids = found[mx.argsort(-logprobs[found])].tolist()  # type: ignore[assignment]
    values: list[float] = mx.maximum(logprobs[mx.array([token, *ids])], LEAST).tolist()  # type: ignore[assignment]
    chosen, *others = (
        LikelyToken(spelled.decode("utf-8", "replace"), value, list(spelled))
        for spelled, value in zip((to_bytes(tokenizer, id_) for id_ in (token, *ids)), values, strict=True)
    )
    return ChosenToken(chosen.token, chosen.logprob, chosen.bytes, others)


def to_bytes(tokenizer: Any, token: int) -> bytes:
    """Spell a token, which may be a part of a character, as it stands in a text that goes on."""
    detokenizer = tokenizer.detokenizer
    known = getattr(detokenizer, "tokenmap", [])
    if token >= len(known):  # of a vocabulary that was padded, or of a detokenizer that asks the tokenizer
        return str(tokenizer.decode([token])).encode()
    if isinstance(detokenizer, SPMStreamingDetokenizer):
        return bytes(known[token].replace(SPACE, b" "))
    bytes_of = _bytes_of()
    return b"".join(bytes_of.get(char) or char.encode() for char in known[token])


@cache
def _bytes_of() -> dict[str, bytes]:
    return {char: bytes([byte]) for byte, char in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]


TRIMS: tuple[Callable[[bytes], bytes], ...] = (bytes, bytes.lstrip)  # the markers may have dropped leading whitespace


class Attribution:
    """The chosen tokens that wait for the text they are part of: a token may show nothing yet, or something hidden."""

    def __init__(self) -> None:
        self._waiting: list[ChosenToken] = []
        self._held = b""  # the end of a token whose beginning was said

    def add(self, chosen: ChosenToken) -> None:
        """Have one more token wait."""
        self._waiting.append(chosen)

    def skip(self) -> None:
        """Forget what was reasoning or a call. The last token may be part of what follows."""
        del self._waiting[:-1]
        self._held = b""

    def take(self, text: str) -> list[ChosenToken]:
        """Give the tokens of a text, without those before it that showed nothing."""
        waiting, self._waiting = self._waiting, []
        said = text.encode()
        for trimmed, first in product(TRIMS, range(len(waiting) + 1)):
            spelled = b"".join(bytes(chosen.bytes) for chosen in waiting[first:])
            start = trimmed(spelled if first else self._held + spelled)
            if start.startswith(said):
                self._held = start[len(said) :]
                return waiting[first:]
        self._held = b""
        return waiting
