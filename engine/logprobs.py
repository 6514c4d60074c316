"""From a row of log probabilities to the tokens a client asked to see."""

from functools import cache
from typing import Any

import mlx.core as mx
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, SPMStreamingDetokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.pieces import ChosenToken, LikelyToken

LEAST = -9999.0  # what the API writes for a token that cannot be chosen; JSON has no minus infinity
SPACE = "\N{LOWER ONE EIGHTH BLOCK}".encode()  # how SentencePiece spells it


def to_chosen(tokenizer: Any, token: int, logprobs: mx.array, likeliest: int) -> ChosenToken:
    """Tell of the chosen token, and of the `likeliest` ones at its place, the likeliest first."""
    ids: list[int] = []
    if likeliest:
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
    if isinstance(detokenizer, BPEStreamingDetokenizer) and token < len(detokenizer.tokenmap):
        bytes_of = _bytes_of()
        return b"".join(bytes_of.get(char) or char.encode() for char in detokenizer.tokenmap[token])
    if isinstance(detokenizer, SPMStreamingDetokenizer):
        return bytes(detokenizer.tokenmap[token].replace(SPACE, b" "))
    return str(tokenizer.decode([token])).encode()


@cache
def _bytes_of() -> dict[str, bytes]:
    return {char: bytes([byte]) for byte, char in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
