import math

import mlx.core as mx
import pytest
from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer, SPMStreamingDetokenizer, TokenizerWrapper
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from engine.logprobs import LEAST, Attribution, to_bytes, to_chosen
from engine.pieces import ChosenToken
from tests.engine.tiny import END, START, make_fast_tokenizer, make_tokenizer, tokens_of

PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hel", "lo", "▁", "é", "wörld"]


def make_spm_tokenizer():
    """Make a tokenizer as SentencePiece's are, with a token for each byte to fall back on."""
    vocabulary = [(piece, -float(n)) for n, piece in enumerate(PIECES)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return TokenizerWrapper(fast, SPMStreamingDetokenizer, eos_token_ids=[2])


def log(*probabilities):
    return mx.log(mx.array(probabilities))


def test_every_token_is_told_with_its_probability_and_its_bytes():
    tokenizer = make_tokenizer()
    probabilities = [0.0] * (END + 1)
    for letter, probability in (("a", 0.5), ("b", 0.1), ("c", 0.3), ("\n", 0.1)):
        probabilities[tokens_of(letter)[0]] = probability

    chosen = to_chosen(tokenizer, *tokens_of("b"), log(*probabilities), 2)

    assert (chosen.token, chosen.bytes) == ("b", [98])
    assert chosen.logprob == pytest.approx(math.log(0.1))
    assert [(one.token, one.bytes, round(math.exp(one.logprob), 6)) for one in chosen.top_logprobs] == [
        ("a", [97], 0.5),
        ("c", [99], 0.3),
    ]


@pytest.mark.parametrize("likeliest", [0, 1, 5, 20])
def test_so_many_of_the_likeliest_are_told_in_order(likeliest):
    logits = mx.random.normal((END + 1,), key=mx.random.key(1))
    logprobs = logits - mx.logsumexp(logits)

    chosen = to_chosen(make_tokenizer(), 3, logprobs, likeliest)

    told = [one.logprob for one in chosen.top_logprobs]
    assert told == pytest.approx(sorted(logprobs.tolist(), reverse=True)[:likeliest], abs=1e-5)
    assert chosen.logprob == pytest.approx(logprobs[3].item(), abs=1e-5)


def test_the_chosen_token_may_be_among_the_likeliest():
    chosen = to_chosen(make_tokenizer(), 1, log(0.2, 0.7, 0.1), 2)

    assert chosen.top_logprobs[0].token == chosen.token
    assert chosen.top_logprobs[0].logprob == chosen.logprob


def test_a_vocabulary_smaller_than_what_is_asked_for_is_told_whole():
    chosen = to_chosen(make_tokenizer(), 0, log(0.2, 0.7, 0.1), 20)

    assert [round(math.exp(one.logprob), 3) for one in chosen.top_logprobs] == [0.7, 0.2, 0.1]


def test_a_token_that_cannot_be_chosen_has_a_number_all_the_same():
    chosen = to_chosen(make_tokenizer(), 2, log(0.25, 0.75, 0.0), 3)

    assert chosen.logprob == LEAST
    assert [one.logprob for one in chosen.top_logprobs][-1] == LEAST


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_what_half_precision_got_wrong_is_put_right(dtype):
    logits = (mx.random.normal((END + 1,), key=mx.random.key(1)) * 5).astype(dtype)
    logprobs = logits - mx.logsumexp(logits)

    chosen = to_chosen(make_tokenizer(), 0, logprobs, END + 1)

    assert sum(math.exp(one.logprob) for one in chosen.top_logprobs) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("text", ["plain", "a 😀 é\n\t", "日本語", " leading"])
def test_the_bytes_of_byte_level_tokens_join_to_the_text(text):
    tokenizer = make_tokenizer()

    spelled = [to_bytes(tokenizer, token) for token in tokens_of(text)]

    assert b"".join(spelled).decode() == text
    assert max(map(len, spelled)) == 1


def test_a_part_of_a_character_is_told_as_bytes_and_as_a_replacement():
    chosen = [to_chosen(make_tokenizer(), token, mx.zeros(END + 1), 0) for token in tokens_of("é")]

    assert [one.bytes for one in chosen] == [[0xC3], [0xA9]]
    assert [one.token for one in chosen] == ["\N{REPLACEMENT CHARACTER}"] * 2


def test_special_tokens_and_those_beyond_the_tokenizer_are_spelled():
    tokenizer = make_tokenizer()

    assert to_bytes(tokenizer, START) == b"<s>"
    assert to_bytes(tokenizer, 9_999) == b""


def test_sentencepiece_spells_spaces_and_single_bytes_its_own_way():
    tokenizer = make_spm_tokenizer()
    tokens = [
        PIECES.index(piece) for piece in ("▁Hel", "lo", "▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "é", "wörld")
    ]

    spelled = [to_bytes(tokenizer, token) for token in tokens]

    assert b"".join(spelled).decode() == " Hello 😀éwörld"
    assert spelled[3:7] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert to_bytes(tokenizer, 9_999) == b""


def test_any_other_tokenizer_is_asked_for_the_text():
    tokenizer = TokenizerWrapper(make_fast_tokenizer(), NaiveStreamingDetokenizer, eos_token_ids=[END])

    assert b"".join(to_bytes(tokenizer, token) for token in tokens_of("Hi you")) == b"Hi you"
    assert to_bytes(tokenizer, tokens_of("é")[0]).decode() == "\N{REPLACEMENT CHARACTER}"


# Attribution


def chosen(text):
    spelled = text if isinstance(text, bytes) else text.encode()
    return ChosenToken(spelled.decode(errors="replace"), -1.0, list(spelled), [])


def attributed(*events):
    """Play tokens, and texts that were said after them; tell the tokens of each text."""
    attribution, told = Attribution(), []
    for kind, value in events:
        if kind == "token":
            attribution.add(chosen(value))
        elif kind == "hidden":
            attribution.skip()
        else:
            told.append([bytes(one.bytes).decode(errors="replace") for one in attribution.take(value)])
    return told


def token(text):
    return ("token", text)


def said(text):
    return ("said", text)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([token("a"), said("a"), token("b"), token("c"), said("bc")], [["a"], ["b", "c"]]),
        ([token(b"\xc3"), token(b"\xa9"), said("é")], [["\ufffd", "\ufffd"]]),
        # the end of a token was held back, for it could have become a stop text
        ([token("a<"), said("a"), token("b"), said("<b")], [["a<"], ["b"]]),
        ([token("X"), token("Y"), token("aX"), said("XYa"), token("b"), said("Xb")], [["X", "Y", "aX"], ["b"]]),
        # markers, and the whitespace after them, show nothing
        ([token("</think>"), token("\n\n"), token("OK"), said("OK")], [["OK"]]),
        ([token("Hm"), ("hidden", None), token("</think>"), token("OK"), said("OK")], [["OK"]]),
        ([token("</think>"), token("\n\nOK"), said("OK")], [["\n\nOK"]]),
        ([token("</think>OK"), said("OK")], [["</think>OK"]]),
        ([token(" Hi"), said("Hi")], [[" Hi"]]),
        ([token("<tool"), token(">no"), said("<tool>no")], [["<tool", ">no"]]),
        # what cannot be told apart is given whole
        ([token(b"\xff"), token("a"), said("\ufffda")], [["\ufffd", "a"]]),
    ],
)
def test_tokens_go_with_the_text_they_are_part_of(events, told):
    assert attributed(*events) == told
