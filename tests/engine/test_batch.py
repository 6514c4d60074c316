import gc

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from engine import sequence as sequences
from engine.batch import EVEN, find_culprit, to_chunk
from engine.pieces import Sampling
from tests.engine.architectures import WINDOW, make_model
from tests.engine.stepped import Stepped, greedy, some_tokens
from tests.engine.tiny import END, Reciting, Watched, load_tokenizer, tokens_of

pytestmark = pytest.mark.usefixtures("uncompiled")
LETTERS = "".join(map(chr, range(33, 127)))
UNCUT = ["gemma3", "mamba2", "qwen3_next", "recurrent_gemma", "falcon_h1"]  # whose caches cannot be cut anywhere


@pytest.fixture(scope="module")
def llama():
    return make_model("llama")


class Shapes(Watched):
    """Remembers the shape of each input."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __call__(self, inputs, **kwargs):
        self.shapes.append(inputs.shape)
        return super().__call__(inputs, **kwargs)


class Allergic(Reciting):
    """Recites, but breaks on one token, wherever it meets it."""

    def __init__(self, letter, error):
        super().__init__(tokens_of(LETTERS))
        (self.allergen,) = tokens_of(letter)
        self.error = error

    def __call__(self, inputs, **kwargs):
        if self.allergen in inputs.flatten().tolist():
            raise self.error
        return super().__call__(inputs, **kwargs)


# Joining and leaving


async def test_decodes_join_and_leave_while_others_run(llama):
    alone = [Stepped(llama).answer(some_tokens(n, n), greedy(n)).tokens for n in (5, 40, 9)]
    stepped = Stepped(llama)

    first = stepped.decode(some_tokens(5, 5), greedy(5))
    stepped.step(3)
    second = stepped.decode(some_tokens(40, 40), greedy(40))
    stepped.step(6)
    third = stepped.decode(some_tokens(9, 9), greedy(9))
    stepped.run(first, second, third)

    assert [heard.tokens for heard in (first, second, third)] == alone
    assert stepped.ended == [first.channel, third.channel, second.channel]
    assert stepped.batch.is_idle


async def test_a_long_prompt_holds_up_no_running_decode():
    model = Shapes()
    stepped = Stepped(model, prefill_step_size=16)
    running = stepped.decode(tokens_of("a"), greedy(50))
    stepped.step(2)
    told = len(running.tokens)

    stepped.decode(some_tokens(200), greedy(1))
    stepped.step(10)

    assert len(running.tokens) == told + 10
    assert max(length for _, length in model.shapes) == 16


async def test_many_prompts_that_come_together_share_four_chunks():
    model = Shapes()
    stepped = Stepped(model, prefill_step_size=16)

    stepped.run(*(stepped.decode(some_tokens(50, n), greedy(1)) for n in range(6)))

    assert max(width * length for width, length in model.shapes) <= 64
    assert (6, 10) in model.shapes


async def test_a_few_prompts_that_come_together_have_a_chunk_each():
    model = Shapes()
    stepped = Stepped(model, prefill_step_size=16)

    stepped.run(*(stepped.decode(some_tokens(50, n), greedy(1)) for n in range(3)))

    assert max(length for _, length in model.shapes) == 16
    assert (3, 16) in model.shapes


async def test_no_more_decodes_run_than_the_capacity_and_the_others_follow_in_order(llama):
    model = Shapes()
    stepped = Stepped(model, capacity=2)

    heard = stepped.run(*(stepped.decode(some_tokens(5, n), greedy(n + 3)) for n in range(5)))

    assert max(width for width, _ in model.shapes) == 2
    assert stepped.ended == [one.channel for one in heard]


async def test_a_decode_that_waits_has_not_begun_and_finds_what_was_kept_meanwhile(llama):
    stepped = Stepped(llama, capacity=1)
    first, second = (stepped.decode(some_tokens(20), greedy(4)) for _ in range(2))
    stepped.step(2)

    assert (first.channel._begun.is_set(), second.channel._begun.is_set()) == (False, False)  # the loop has not run
    stepped.run(first, second)

    assert (first.finish.cached_tokens, second.finish.cached_tokens) == (0, 19)


async def test_a_decode_cancelled_while_it_waits_costs_nothing():
    model = Shapes()
    stepped = Stepped(model, capacity=1)
    first, second = stepped.decode(tokens_of("a"), greedy(5)), stepped.decode(tokens_of("b"), greedy(5))
    stepped.step()

    second.channel.cancel()
    stepped.run(first)
    calls = len(model.shapes)
    stepped.step(2)

    assert set(stepped.ended) == {first.channel, second.channel}
    assert len(model.shapes) == calls


@pytest.mark.parametrize("prompt", [[], ["a"]])
async def test_a_prompt_that_is_none_breaks_only_its_own_decode(llama, prompt):
    stepped = Stepped(llama)
    running = stepped.decode(some_tokens(5), greedy(8))
    stepped.step(2)

    broken = stepped.decode(prompt, greedy(5))
    stepped.run(running, broken)

    assert len(running.tokens) == 8
    assert broken.channel._error is not None
    assert set(stepped.ended) == {running.channel, broken.channel}


@pytest.mark.parametrize("max_tokens", [0, -3])
async def test_a_decode_without_room_breaks_only_itself(llama, max_tokens):
    stepped = Stepped(llama)
    running = stepped.decode(some_tokens(5), greedy(8))

    broken = stepped.decode(some_tokens(6), greedy(max_tokens))
    stepped.run(running, broken)

    assert len(running.tokens) == 8
    assert isinstance(broken.error, ValueError)


# Setting aside

SAMPLINGS = {
    "greedy": greedy(40),
    "seeded": Sampling(temperature=1.0, top_p=0.9, max_tokens=40, seed=7),
    "penalties": greedy(40, presence_penalty=1.5, frequency_penalty=0.5),
    "seeded with penalties": Sampling(temperature=0.8, top_p=1, max_tokens=40, seed=-1, frequency_penalty=1.0),
}


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_a_decode_set_aside_and_taken_back_says_the_same(llama, name):
    plain = Stepped(llama).answer(some_tokens(20), SAMPLINGS[name])
    stepped = Stepped(llama)
    bystander = stepped.decode(some_tokens(9, 1), greedy(60))
    slow = stepped.decode(some_tokens(20), SAMPLINGS[name], unread=2)

    times = 0
    while not slow.channel._is_closed:
        stepped.step()
        if slow.channel.is_aside:
            times += 1
            told = len(slow.tokens)
            stepped.step(2)
            assert len(slow.tokens) == told
            slow.read()
    slow.read()

    assert times > 5
    assert slow.tokens == plain.tokens
    assert slow.pieces[-1] == plain.finish
    stepped.run(bystander)
    assert bystander.tokens == Stepped(llama).answer(some_tokens(9, 1), greedy(60)).tokens


async def test_a_batch_of_decodes_set_aside_is_idle_until_a_reader_has_caught_up(llama):
    stepped = Stepped(llama)
    slow = stepped.decode(some_tokens(20), greedy(40), unread=5)
    stepped.step(20)
    assert stepped.batch.is_idle

    slow.read()

    assert not stepped.batch.is_idle


async def test_a_decode_cancelled_while_aside_leaves_its_prompt(llama):
    stepped = Stepped(llama)
    slow = stepped.decode(some_tokens(20), greedy(40), unread=5)
    stepped.step(20)

    slow.channel.cancel()
    assert not stepped.batch.is_idle
    stepped.step()

    assert stepped.ended == [slow.channel]
    assert stepped.answer(some_tokens(20), greedy(1)).finish.cached_tokens == 19


@pytest.mark.parametrize("name", ["mamba2", "llama4"])
async def test_a_decode_that_cannot_be_cut_is_not_set_aside(name):
    stepped = Stepped(make_model(name))

    slow = stepped.run(stepped.decode(some_tokens(20), greedy(20), unread=5))

    assert slow.tokens == Stepped(make_model(name)).answer(some_tokens(20), greedy(20)).tokens


async def test_a_decode_begun_again_while_its_reader_is_behind_says_the_same(llama):
    plain = Stepped(llama).answer(some_tokens(90), greedy(20))
    stepped = Stepped(llama)
    slow, other = stepped.decode(some_tokens(90), greedy(20)), stepped.decode(some_tokens(5), greedy(20))
    while len(slow.channel._unread) < 2:
        stepped.step()

    stepped.batch.survive(MemoryError())
    slow.channel._capacity = 2
    stepped.run(other)
    while not slow.channel._is_closed:
        stepped.step()
        if slow.channel.is_aside:
            slow.read()
    slow.read()

    assert slow.tokens == plain.tokens


# Breaking


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("of the kernel"), ValueError()])
@pytest.mark.parametrize("culprit", ["mnopqrx", "s"])  # breaks in its prefill, breaks in its decode
async def test_what_breaks_a_step_fails_alone(error, culprit):
    stepped = Stepped(Allergic("x", error))
    others = [stepped.decode(tokens_of(prompt), greedy(12)) for prompt in ("A", LETTERS[:20], "ab")]
    stepped.step(4)

    broken = stepped.decode(tokens_of(culprit), greedy(30))
    more = stepped.decode(tokens_of("BCDEFGHIJKLMNOPQR"), greedy(3))
    stepped.run(*others, broken, more)

    assert [one.text for one in others] == ["BCDEFGHIJKLM", LETTERS[20:32], "cdefghijklmn"]
    assert more.text == "STU"
    assert broken.error is error
    assert broken.text == ("tuvw" if culprit == "s" else "")
    assert len(stepped.ended) == 5
    assert stepped.batch.is_idle


async def test_many_that_break_do_not_take_the_others_along():
    stepped = Stepped(Allergic("x", MemoryError()))
    prompts = ["x", LETTERS[:50], "wx", "A", "mnopqrstuvwxy"]

    heard = stepped.run(*(stepped.decode(tokens_of(prompt), greedy(20)) for prompt in prompts))

    assert [one.text for one in heard] == ["", LETTERS[50:70], "", LETTERS[33:53], ""]
    assert [isinstance(one.error, MemoryError) for one in heard] == [not one.text for one in heard]


async def test_a_step_that_breaks_once_by_chance_fails_nobody(llama):
    model = make_model("llama")
    calls = iter(range(1000))
    plain = [Stepped(llama).answer(some_tokens(n, n), SAMPLINGS["seeded"]).tokens for n in (30, 4, 17)]

    class OutOfLuck:
        layers = model.layers
        args = model.args

        def __call__(self, *args, **kwargs):
            if next(calls) == 20:
                raise MemoryError
            return model(*args, **kwargs)

    stepped = Stepped(OutOfLuck())

    heard = stepped.run(*(stepped.decode(some_tokens(n, n), SAMPLINGS["seeded"]) for n in (30, 4, 17)))

    assert len(stepped.breaks) == 1
    assert [one.tokens for one in heard] == plain


async def test_a_break_lets_go_of_every_cache(llama):
    stepped = Stepped(Allergic("x", MemoryError()))
    stepped.answer(tokens_of("abc"), greedy(3))
    slow = stepped.decode(tokens_of("A"), greedy(40), unread=5)
    stepped.step(10)
    assert slow.channel.is_aside
    assert stepped.kept.nbytes

    stepped.run(stepped.decode(tokens_of("x"), greedy(3)))

    assert stepped.kept.nbytes == 0
    slow.read()
    while not slow.channel._is_closed:
        stepped.step()
        slow.read()
    assert slow.text == LETTERS[33:73]


async def test_a_processor_that_breaks_fails_its_own_decode(llama, monkeypatch):
    def to_processors(sampling, prompt_length):
        def process(tokens, logits):
            if sampling.presence_penalty and len(tokens) - prompt_length == 3:
                raise KeyError
            return logits

        return [process]

    monkeypatch.setattr(sequences, "to_processors", to_processors)
    stepped = Stepped(llama)
    others = [stepped.decode(some_tokens(n, n), greedy(20)) for n in (60, 3)]
    broken = stepped.decode(some_tokens(9, 9), greedy(20, presence_penalty=1.0))

    stepped.run(*others, broken)

    assert isinstance(broken.error, KeyError)
    assert len(stepped.breaks) == 1
    assert [len(one.tokens) for one in others] == [20, 20]


async def test_an_answer_that_cannot_be_told_fails_alone(llama, monkeypatch):
    stepped = Stepped(llama)
    broken, other = (stepped.decode(some_tokens(5, n), greedy(10)) for n in range(2))

    def read(_):
        raise LookupError

    monkeypatch.setattr(broken._sequence._markers, "read", read)
    stepped.run(broken, other)

    assert isinstance(broken.error, LookupError)
    assert len(other.tokens) == 10
    assert not stepped.breaks
    assert set(stepped.ended) == {broken.channel, other.channel}


async def test_a_cache_that_cannot_be_kept_fails_nobody(llama, monkeypatch):
    stepped = Stepped(llama)
    first, second = (stepped.decode(some_tokens(5, n), greedy(5 + n)) for n in range(2))

    def put(*_, **__):
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(stepped.kept, "put", put)
    stepped.run(first, second)

    assert not stepped.breaks
    assert (len(first.tokens), len(second.tokens)) == (5, 6)
    assert stepped.ended == [first.channel, second.channel]


class Suspect:
    def __init__(self, name, *, settled=True, breaks=0, error=None, length=1):
        self.name, self.is_settled, self.breaks, self.error, self.tokens = name, settled, breaks, error, [0] * length


@pytest.mark.parametrize(
    ("running", "culprit"),
    [
        ([], None),
        ([Suspect("only")], "only"),
        ([Suspect("a"), Suspect("b")], None),
        ([Suspect("a", length=9), Suspect("new", settled=False)], "new"),
        ([Suspect("a"), Suspect("new", settled=False), Suspect("newer", settled=False)], None),
        ([Suspect("a"), Suspect("b", error=KeyError(), length=2)], "b"),
        ([Suspect("a", breaks=1), Suspect("b", breaks=1, length=2)], "b"),
        ([Suspect("a", length=5), Suspect("b", breaks=1)], "b"),
        ([Suspect("a", breaks=1, length=9), Suspect("b", breaks=1, settled=False)], "b"),
    ],
)
def test_who_broke_a_step(running, culprit):
    found = find_culprit(running)

    assert (found and found.name) == culprit


# Keeping


async def test_a_cancel_in_a_prefill_keeps_what_was_prefilled(llama):
    stepped = Stepped(llama)
    cancelled = stepped.decode(some_tokens(100), greedy(5))
    stepped.step(3)

    cancelled.channel.cancel()
    stepped.step()
    again = stepped.answer(some_tokens(100), greedy(5))

    assert stepped.ended[0] is cancelled.channel
    assert again.finish.cached_tokens == 3 * 16
    assert again.tokens == Stepped(llama).answer(some_tokens(100), greedy(5)).tokens


async def test_a_cancelled_answer_leaves_its_prompt_and_no_more(llama):
    stepped = Stepped(llama)
    cancelled = stepped.decode(some_tokens(30), greedy(50))
    stepped.step(12)
    cancelled.channel.cancel()
    stepped.step()

    again = stepped.answer(cancelled.everything, greedy(1))

    assert len(cancelled.tokens) > 5
    assert again.finish.cached_tokens == 30


@pytest.mark.parametrize(("is_kept", "cached"), [(False, 30), (True, 38)])
async def test_a_later_turn_finds_the_answer_if_it_was_delivered(llama, is_kept, cached):
    stepped = Stepped(llama)
    first = stepped.answer(some_tokens(30), greedy(8))
    if is_kept:
        first.channel.keep()
    turn = [*first.everything, *some_tokens(7, 1)]

    warm = stepped.answer(turn, greedy(20))

    assert warm.finish.cached_tokens == cached
    assert warm.tokens == Stepped(llama).answer(turn, greedy(20)).tokens


async def test_owners_share_nothing(llama):
    stepped = Stepped(llama)
    stepped.answer(some_tokens(30), greedy(8), owner="Ann")

    assert stepped.answer(some_tokens(30), greedy(8), owner="Bob").finish.cached_tokens == 0
    assert stepped.answer(some_tokens(30), greedy(8), owner="Ann").finish.cached_tokens == 29


async def test_two_that_go_on_from_one_cache_at_once_do_not_meet(llama):
    stepped = Stepped(llama)
    stepped.answer(some_tokens(30), greedy(1))
    turns = [some_tokens(30) + some_tokens(9, n) for n in range(1, 5)]

    heard = stepped.run(*(stepped.decode(turn, greedy(20)) for turn in turns))

    assert [one.finish.cached_tokens for one in heard] == [30] * 4
    assert [one.tokens for one in heard] == [Stepped(llama).answer(turn, greedy(20)).tokens for turn in turns]


@pytest.mark.parametrize("name", UNCUT)
async def test_a_cache_that_cannot_be_cut_serves_the_same_prompt_and_the_next_turn(name):
    model = make_model(name)
    stepped = Stepped(model)
    first = stepped.answer(some_tokens(50), greedy(8))
    first.channel.keep()
    turn = [*first.everything, *some_tokens(7, 1)]

    again, later = stepped.answer(some_tokens(50), greedy(8)), stepped.answer(turn, greedy(12))

    assert (again.finish.cached_tokens, later.finish.cached_tokens) == (49, 58)
    assert again.tokens == first.tokens
    assert later.tokens == Stepped(model).answer(turn, greedy(12)).tokens


async def test_a_cache_that_cannot_be_cut_is_of_no_use_to_a_prompt_that_differs_within_it():
    stepped = Stepped(make_model("mamba2"))
    stepped.answer(some_tokens(50), greedy(8))

    assert stepped.answer([*some_tokens(40), 1, 2], greedy(1)).finish.cached_tokens == 0


async def test_a_rotating_cache_can_be_cut_below_its_window():
    model = make_model("gemma3")
    stepped = Stepped(model)
    stepped.answer(some_tokens(WINDOW - 8), greedy(4))
    turn = [*some_tokens(10), *some_tokens(9, 1)]

    warm = stepped.answer(turn, greedy(20))

    assert warm.finish.cached_tokens == 10
    assert warm.tokens == Stepped(model).answer(turn, greedy(20)).tokens


@pytest.mark.parametrize("length", [20, 21])
async def test_where_reasoning_opens_a_cache_that_cannot_be_cut_is_kept_too(tmp_path, length):
    tokenizer = load_tokenizer(tmp_path)
    stepped = Stepped(make_model("mamba2"), tokenizer)
    opening = tokenizer.encode("<think>\n", add_special_tokens=False)
    first = stepped.answer([*some_tokens(length), *opening], greedy(8))
    first.channel.keep()

    without = stepped.answer([*some_tokens(length), *tokens_of("No thoughts"), END], greedy(1))

    assert without.finish.cached_tokens == length - length % EVEN


@pytest.mark.parametrize("lengths", [(50, 29), (29, 50, 41), (60, 33, 34, 35)])
@pytest.mark.parametrize("prefill_step_size", [1, 2, 3, 5])
async def test_chunks_of_any_size_give_a_rotating_cache_the_same_tokens(lengths, prefill_step_size):
    model = make_model("gemma3")
    stepped = Stepped(model, prefill_step_size=prefill_step_size)
    heard = []
    for length in lengths:
        heard.append(stepped.decode(some_tokens(length, length), greedy(6)))
        stepped.step(4)
    stepped.run(*heard)

    alone = [list(generate_step(mx.array(some_tokens(n, n)), model, max_tokens=6)) for n in lengths]

    assert [one.tokens for one in heard] == [[token for token, _ in steps] for steps in alone]


def test_chunks_are_even():
    assert [to_chunk(tokens) for tokens in (0, 1, 2, 3, 16, 512)] == [2, 2, 2, 2, 16, 512]


# Memory


def active_memory():
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


async def test_an_answer_or_a_cancel_leaves_no_memory_but_its_cache(llama):
    stepped = Stepped(llama)
    before = active_memory()
    long = stepped.decode(some_tokens(600), greedy(200))
    heard = [stepped.decode(some_tokens(10, n), greedy(60 + n)) for n in range(7)]
    stepped.run(*heard)
    long.channel.cancel()
    stepped.step()
    del heard, long
    stepped.ended.clear()

    assert stepped.kept.nbytes > 0
    assert active_memory() - before <= stepped.kept.nbytes + 20_000
    stepped.kept.clear()
    assert active_memory() - before <= 20_000


async def test_caches_in_use_and_kept_ones_share_the_limit(llama):
    stepped = Stepped(llama, cache_bytes=200_000)
    kept = [stepped.answer(some_tokens(50, n), greedy(2)) for n in range(6)]
    full = stepped.kept.nbytes
    assert 0 < full <= 200_000

    stepped.decode(some_tokens(200, 9), greedy(60))
    stepped.step(20)
    stepped.answer(some_tokens(5, 7), greedy(2))

    assert stepped.kept.nbytes + stepped.batch._generator.prompt_cache_nbytes <= 200_000
    assert kept


async def test_no_cache_is_kept_where_there_is_no_room(llama):
    stepped = Stepped(llama, cache_bytes=0)

    stepped.run(*(stepped.decode(some_tokens(20), greedy(3)) for _ in range(2)))

    assert stepped.kept.nbytes == 0
    assert len(stepped.kept) == 0
