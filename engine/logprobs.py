"""From a row of log probabilities to the tokens a client asked to see."""

from functools import cache
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.tokenizer_utils import SPMStreamingDetokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.pieces import ChosenToken, LikelyToken

LEAST = -9999.0  # what the API writes for a token that cannot be chosen; JSON has no minus infinity
SPACE = "\N{LOWER ONE EIGHTH BLOCK}".encode()  # how SentencePiece spells it


def to_chosen(tokenizer: Any, token: int, logprobs: mx.array, likeliest: int) -> ChosenToken:
    """Tell of the chosen token, and of the `likeliest` ones at its place, the likeliest first."""
    row = to_row(logprobs)
    count = min(likeliest, row.size)
    found = np.argpartition(-row, count - 1)[:count] if count else np.arange(0)
    ids = [token, *found[np.argsort(-row[found])].tolist()]
    values = np.maximum(row[ids], LEAST).tolist()
    chosen, *others = (
        LikelyToken(spelled.decode("utf-8", "replace"), value, list(spelled))
        for spelled, value in zip((to_bytes(tokenizer, id_) for id_ in ids), values, strict=True)
    )
    return ChosenToken(chosen.token, chosen.logprob, chosen.bytes, others)


def to_row(logprobs: mx.array) -> npt.NDArray[np.float32]:
    """Take log probabilities out of MLX, where the next token is being computed already."""
    if logprobs.dtype == mx.float32:
        return np.asarray(logprobs)
    row: npt.NDArray[np.float32] = np.asarray(logprobs.astype(mx.float32))
    row -= np.log(np.exp(row).sum())  # half precision leaves them up to some percent off
    return row


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
        if not self._waiting:
            self._held = b""
            return []
        waiting, self._waiting = self._waiting, []
        said = text.encode()
        for is_trimmed, first in product((False, True), range(len(waiting) + 1)):
            spelled = b"".join(bytes(chosen.bytes) for chosen in waiting[first:])
            start = spelled if first else self._held + spelled
            start = start.lstrip() if is_trimmed else start
            if start.startswith(said):
                self._held = start[len(said) :]
                return waiting[first:]
        self._held = b""
        return waiting
