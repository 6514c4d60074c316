import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import ConcatenateKVCache

from engine.pieces import Text
from tests.engine.architectures import make_model
from tests.engine.stepped import Stepped, greedy, some_tokens
from tests.engine.tiny import Reciting, tokens_of

pytestmark = pytest.mark.usefixtures("uncompiled")
LETTERS = "".join(map(chr, range(33, 127)))


class Unmergeable(Reciting):
    """Recites with caches that cannot be merged."""

    def __init__(self):
        super().__init__(tokens_of(LETTERS))

    def make_cache(self):
        return [ConcatenateKVCache() for _ in self.layers]


@pytest.fixture(scope="module")
def unmergeable():
    return make_model("llama4")


def generated(model, prompt, max_tokens):
    return [token for token, _ in generate_step(mx.array(prompt), model, max_tokens=max_tokens)]


async def test_what_cannot_be_batched_is_served_in_turn_with_the_same_tokens(unmergeable):
    stepped = Stepped(unmergeable)
    prompts = [some_tokens(length, length) for length in (40, 3, 1, 30)]

    heard = stepped.run(*(stepped.decode(prompt, greedy(15)) for prompt in prompts))

    assert [one.tokens for one in heard] == [generated(unmergeable, prompt, 15) for prompt in prompts]
    assert stepped.ended == [one.channel for one in heard]


async def test_a_cache_is_used_again_and_never_written_to(unmergeable):
    stepped = Stepped(unmergeable)
    prompt = some_tokens(15)

    heard = [stepped.answer(prompt, greedy(20, presence_penalty=1.0)) for _ in range(3)]

    assert [one.finish.cached_tokens for one in heard] == [0, 14, 14]
    assert heard[0].tokens == heard[1].tokens == heard[2].tokens


async def test_a_cancel_keeps_what_was_prefilled(unmergeable):
    stepped = Stepped(unmergeable)
    cancelled, waiting = (stepped.decode(some_tokens(60), greedy(5)) for _ in range(2))
    stepped.step(2)

    cancelled.channel.cancel()
    stepped.run(waiting)

    assert waiting.finish.cached_tokens == 2 * 16
    assert waiting.tokens == generated(unmergeable, some_tokens(60), 5)


async def test_what_breaks_fails_alone(unmergeable, monkeypatch):
    stepped = Stepped(unmergeable)
    broken, longer = stepped.decode(some_tokens(5), greedy(5)), stepped.decode(some_tokens(50), greedy(5))
    following, generate = stepped.batch._generator._step, iter([None])

    def break_once(lone):
        for _ in generate:
            raise MemoryError
        return following(lone)

    monkeypatch.setattr(stepped.batch._generator, "_step", break_once)
    stepped.run(broken, longer)

    assert isinstance(broken.error, MemoryError)
    assert longer.tokens == generated(unmergeable, some_tokens(50), 5)


async def test_a_stop_text_ends_the_answer():
    stepped = Stepped(Unmergeable())

    heard = stepped.answer(tokens_of("A"), greedy(30, stop=("EF",)))

    assert heard.pieces[:-1] == [Text("B"), Text("C"), Text("D")]
    assert heard.finish.reason == "stop"
