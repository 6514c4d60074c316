"""Greedy tokens are the same cold, warm, after a restart, alone, in a busy batch, and after a rest.

What is computed is not the same to the last bit: a matrix product over more rows adds up in another order. In float32
log probabilities differ by less than `CLOSE`, so tokens could differ only where two are as likely to within that.
"""

import random

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step

from engine.loading import mlx_engine
from engine.pieces import Sampling, Text
from engine.sequence import Sequence
from engine.starter import ensure_starter
from tests.engine.architectures import ARCHITECTURES, make_model
from tests.engine.stepped import Stepped, greedy

pytestmark = pytest.mark.usefixtures("uncompiled")
CLOSE = 1e-3  # the most that was measured is 7e-5


@pytest.fixture
def told(monkeypatch):
    """Collect the log probabilities that each sequence was told of."""
    told, read = {}, Sequence.read

    def collect(self, token, logprobs, reason):
        told.setdefault(self, []).append(np.array(logprobs.astype(mx.float32)))
        return read(self, token, logprobs, reason)

    monkeypatch.setattr(Sequence, "read", collect)
    return told


def expected(model, prompt, max_tokens):
    """Generate with mlx-lm alone, from nothing, the whole prompt at once."""
    steps = list(generate_step(mx.array(prompt), model, max_tokens=max_tokens))
    return [token for token, _ in steps], [np.array(logprobs.astype(mx.float32)) for _, logprobs in steps]


def make_jobs(draw):
    """Make prompts of all lengths, some of which begin like the first; each has an answer of its own length."""
    jobs = [(draw.choices(range(256), k=draw.randint(1, 80)), draw.randint(2, 24)) for _ in range(draw.randint(2, 5))]
    first = jobs[0][0]
    shared = [(first[: draw.randint(1, len(first))] + prompt, length) for prompt, length in jobs[1:]]
    return [jobs[0], *(draw.choice(pair) for pair in zip(jobs[1:], shared, strict=True))]


def run_busily(stepped, jobs, draw):
    """Let decodes join at any step, between others that come and are cancelled, with readers that pause."""
    heard, others = [], []
    while len(heard) < len(jobs) or not all(one.channel._is_closed for one in heard):
        if draw.random() < 0.4:
            heard += [
                stepped.decode(job[0], greedy(job[1]), unread=draw.choice([3, 1000])) for job in jobs[len(heard) :][:1]
            ]
        disturb(stepped, others, draw)
        stepped.step()
        for one in draw.sample(heard, len(heard) // 2):
            one.read()
        assert stepped.steps < 5000
    return heard


def disturb(stepped, others, draw):
    if draw.random() < 0.1:
        others.append(stepped.decode(draw.choices(range(256), k=draw.randint(1, 60)), greedy(40)))
    if others and draw.random() < 0.2:
        others.pop().channel.cancel()


def difference(told, heard, logprobs):
    return max(float(abs(one - other).max()) for one, other in zip(told[heard._sequence], logprobs, strict=True))


@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("name", ARCHITECTURES)
async def test_tokens_are_the_same_however_they_come_about(name, seed, told):
    draw = random.Random(seed)  # noqa: S311
    model = make_model(name)
    jobs = make_jobs(draw)
    answers = [expected(model, *job) for job in jobs]
    stepped = Stepped(model, capacity=draw.randint(1, 6), prefill_step_size=draw.choice([2, 5, 16, 64]))

    busy = run_busily(stepped, jobs, draw)
    warm = [stepped.answer(prompt, greedy(length)) for prompt, length in jobs]
    cold = [Stepped(model).answer(prompt, greedy(length)) for prompt, length in jobs]

    for way in (busy, warm, cold):
        assert [one.tokens for one in way] == [tokens for tokens, _ in answers]
        assert max(difference(told, one, logprobs) for one, (_, logprobs) in zip(way, answers, strict=True)) < CLOSE
    assert any(one.pieces[-1].cached_tokens for one in warm)


@pytest.mark.parametrize("name", ARCHITECTURES)
async def test_a_conversation_of_turns_is_the_same_warm_and_cold(name):
    model, draw = make_model(name), random.Random(5)  # noqa: S311
    stepped = Stepped(model, prefill_step_size=16)
    transcript = []

    for _ in range(3):
        transcript += draw.choices(range(256), k=draw.randint(3, 40))
        turn = stepped.answer(transcript, greedy(10))
        turn.channel.keep()
        assert turn.tokens == expected(model, transcript, 10)[0]
        transcript = turn.everything

    assert turn.finish.cached_tokens > 0.5 * turn.finish.prompt_tokens


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
async def test_half_precision_differs_by_no_more_than_its_own_rounding(dtype, told):
    draw = random.Random(3)  # noqa: S311
    model = make_model("llama", dtype)
    jobs = make_jobs(draw)
    answers = [expected(model, *job) for job in jobs]

    busy = run_busily(Stepped(model, prefill_step_size=5), jobs, draw)

    for one, (tokens, logprobs) in zip(busy, answers, strict=True):
        same = next(
            (n for n, pair in enumerate(zip(one.tokens, tokens, strict=True)) if pair[0] != pair[1]), len(tokens)
        )
        heard = told[one._sequence][: same + 1]
        apart = [float(abs(mine - theirs).max()) for mine, theirs in zip(heard, logprobs, strict=False)]
        assert max(apart) < 0.5
        if same < len(tokens):  # only between tokens that rounding cannot tell apart
            first, second = sorted(logprobs[same], reverse=True)[:2]
            assert first - second <= 2 * apart[same]


PARAGRAPH = "The quick brown fox jumps over the lazy dog near the river bank. " * 4


@pytest.mark.real
@pytest.mark.timeout(600)
async def test_the_starter_model_says_the_same_however_it_comes_about():
    sampling = Sampling(temperature=0, top_p=1, max_tokens=24)
    questions = [
        "What is the capital of France?",
        PARAGRAPH + "Where is the fox?",
        "Count to ten.",
        "Name three colours.",
    ]
    mx.enable_compile()

    async def text_of(decoding):
        return "".join([piece.text async for piece in decoding if isinstance(piece, Text)])

    async def ask(engine, *asked):
        prompts = [await engine.tokenize([{"role": "user", "content": question}]) for question in asked]
        decodings = [engine.decode(prompt, sampling) for prompt in prompts]
        return [await text_of(decoding) for decoding in decodings], [await decoding.begun() for decoding in decodings]

    engine = mlx_engine(str(ensure_starter()))
    await engine.load()
    cold = [(await ask(engine, question))[0][0] for question in questions]
    warm, cached = await ask(engine, *questions)
    await engine.close()
    restarted = mlx_engine(str(ensure_starter()))
    await restarted.load()
    busy, _ = await ask(restarted, *questions)
    await restarted.close()

    assert cold == warm == busy
    assert min(cached) > 10
    assert "Paris" in cold[0]
