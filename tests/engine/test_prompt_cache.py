import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, RotatingKVCache

from engine.prompt_cache import PromptCache, can_cut, count_shared, parts

TOKEN_BYTES = 2 * 4  # a key and a value in float32
ROOM = 1 << 20


def grow(cache, tokens):
    """Have each token leave itself in a cache, as a model would."""
    for layer in cache:
        new = mx.array(tokens, mx.float32).reshape(1, 1, -1, 1)
        layer.update_and_fetch(new, new)
    return cache


def cache_of(tokens, make=KVCache):
    cache = grow([make(), make()], tokens)
    for layer in cache if make is KVCache else []:
        layer.keys, layer.values = layer.keys[..., : layer.offset, :], layer.values[..., : layer.offset, :]
    return cache


def uncut_cache_of(tokens):
    layer = ArraysCache(1)
    layer[0] = mx.array([tokens], mx.float32)
    return [layer]


def held_by(cache):
    layers = [layer.keys[0, 0, : layer.offset, 0].tolist() for layer in cache]
    assert layers[0] == layers[1]
    return layers[0]


def put(pool, tokens, owner="", **options):
    pool.put(owner, list(tokens), cache_of(tokens), **options)


def fetched(pool, prompt, owner=""):
    """Fetch, and see that the cache holds what it is said to."""
    cache, length = pool.fetch(owner, list(prompt))
    assert length == (len(held_by(cache)) if cache else 0)
    assert held_by(cache) == list(prompt[:length]) if cache else length == 0
    return length


def test_the_longest_prefix_is_found():
    pool = PromptCache(ROOM)
    for tokens in ([1, 2], [1, 2, 3, 4], [1, 2, 3, 9, 9, 9], [7]):
        put(pool, tokens)

    assert fetched(pool, [1, 2, 3, 4, 5]) == 4
    assert fetched(pool, [1, 2, 3, 8]) == 3
    assert fetched(pool, [7, 1]) == 1
    assert fetched(pool, [8, 1]) == 0


def test_one_token_is_always_left_to_process():
    pool = PromptCache(ROOM)
    put(pool, [1, 2, 3])

    assert fetched(pool, [1, 2, 3]) == 2
    assert fetched(pool, [1]) == 0
    assert fetched(pool, []) == 0


def test_an_answer_is_found_once_it_is_kept_and_until_then_only_its_prompt():
    pool = PromptCache(ROOM)
    delivered = []
    put(pool, [1, 2, 3, 4], prompt_length=2, is_kept=lambda: bool(delivered))

    assert fetched(pool, [1, 2, 3, 4, 5]) == 2
    delivered.append(True)
    assert fetched(pool, [1, 2, 3, 4, 5]) == 4


def test_owners_see_nothing_of_each_other():
    pool = PromptCache(ROOM)
    put(pool, [1, 2, 3], owner="Ann")

    assert fetched(pool, [1, 2, 3, 4], owner="Bob") == 0
    assert fetched(pool, [1, 2, 3, 4], owner="") == 0
    put(pool, [1, 2, 3, 4, 5], owner="Bob")
    assert len(pool) == 2
    assert fetched(pool, [1, 2, 3, 4], owner="Ann") == 3


def test_what_is_taken_and_written_to_leaves_what_is_stored_alone():
    pool = PromptCache(ROOM)
    put(pool, [1, 2, 3, 4])

    one, _ = pool.fetch("", [1, 2, 3, 4, 5])
    other, _ = pool.fetch("", [1, 2, 9])
    grow(one, [5, 6])
    grow(other, [9, 9, 9])

    assert held_by(one) == [1, 2, 3, 4, 5, 6]
    assert held_by(other) == [1, 2, 9, 9, 9]
    assert fetched(pool, [1, 2, 3, 4, 7]) == 4


def test_the_least_recently_used_leave_first_and_a_use_counts():
    pool = PromptCache(3 * 2 * 2 * TOKEN_BYTES)
    for tokens in ([1, 1], [2, 2], [3, 3]):
        put(pool, tokens)
    assert fetched(pool, [1, 1, 0]) == 2

    put(pool, [4, 4])

    assert [fetched(pool, [n, n, 0]) for n in (1, 2, 3, 4)] == [2, 0, 2, 2]


def test_bytes_bound_the_pool():
    pool = PromptCache(10 * 2 * TOKEN_BYTES)

    for n in range(20):
        put(pool, [n] * (n % 3 + 1))
        assert pool.nbytes <= pool.max_bytes
    assert len(pool) > 1


def test_what_alone_exceeds_the_bound_turns_nothing_out():
    pool = PromptCache(4 * 2 * TOKEN_BYTES)
    put(pool, [1, 2])

    put(pool, [3] * 5)

    assert fetched(pool, [1, 2, 3]) == 2
    assert fetched(pool, [3, 3]) == 0


def test_it_shrinks_for_others_and_clears():
    pool = PromptCache(ROOM)
    for tokens in ([1, 1], [2, 2], [3, 3]):
        put(pool, tokens)

    pool.shrink(2 * 2 * TOKEN_BYTES)
    assert [fetched(pool, [n, 0]) for n in (1, 2, 3)] == [0, 0, 1]
    pool.shrink(-1)
    assert (len(pool), pool.nbytes) == (0, 0)

    put(pool, [1, 1])
    pool.clear()
    assert (len(pool), pool.nbytes) == (0, 0)


def test_a_longer_cache_takes_the_place_of_what_it_makes_needless():
    pool = PromptCache(ROOM)
    put(pool, [1, 2])
    put(pool, [1, 3])

    put(pool, [1, 2, 3, 4])
    assert len(pool) == 2
    put(pool, [1, 2, 3, 4])
    put(pool, [1, 2, 3])

    assert len(pool) == 2
    assert pool.nbytes == (4 + 2) * 2 * TOKEN_BYTES


def test_an_answer_that_is_not_kept_yet_makes_no_other_needless():
    pool = PromptCache(ROOM)
    put(pool, [1, 2, 3])

    put(pool, [1, 2, 3, 4], prompt_length=2, is_kept=lambda: False)

    assert fetched(pool, [1, 2, 3, 4]) == 3


def test_what_is_needless_from_the_start_only_counts_as_a_use():
    pool = PromptCache(2 * 3 * 2 * TOKEN_BYTES)
    put(pool, [1, 1, 1])
    put(pool, [2, 2, 2])

    put(pool, [1, 1])
    put(pool, [3, 3, 3])

    assert [fetched(pool, [n] * 4) for n in (1, 2, 3)] == [3, 0, 3]


def test_a_cache_that_cannot_be_cut_serves_whole_or_not_at_all():
    pool = PromptCache(ROOM)
    pool.put("", [1, 2, 3], uncut_cache_of([1, 2, 3]))

    assert pool.fetch("", [1, 2, 3, 4])[1] == 3
    assert pool.fetch("", [1, 2, 3])[1] == 0
    assert pool.fetch("", [1, 2, 9, 9])[1] == 0


def test_an_answer_that_cannot_be_cut_gives_nothing_until_it_is_kept():
    pool = PromptCache(ROOM)
    delivered = []
    tokens = [1, 2, 3, 4]
    pool.put("", tokens, uncut_cache_of(tokens), prompt_length=2, is_kept=lambda: bool(delivered))

    assert pool.fetch("", [*tokens, 5])[1] == 0
    delivered.append(True)
    assert pool.fetch("", [*tokens, 5])[1] == 4


def test_caches_that_cannot_be_cut_stand_beside_each_other_but_not_twice():
    pool = PromptCache(ROOM)
    for tokens in ([1, 2], [1, 2, 3], [1, 2], [1, 2, 3]):
        pool.put("", tokens, uncut_cache_of(tokens))

    assert len(pool) == 2
    assert [pool.fetch("", prompt)[1] for prompt in ([1, 2, 9], [1, 2, 3, 9])] == [2, 3]


@pytest.mark.parametrize(
    ("make", "length", "is_so"),
    [
        (KVCache, 40, True),
        (lambda: RotatingKVCache(8), 7, True),
        (lambda: RotatingKVCache(8), 9, False),
        (lambda: ChunkedKVCache(8), 7, True),
        (lambda: ChunkedKVCache(8), 40, False),
    ],
)
def test_what_can_be_cut(make, length, is_so):
    layer = make()
    for token in range(length):
        if isinstance(layer, ChunkedKVCache):
            layer.maybe_trim_front()
        grow([layer], [token])

    assert can_cut([layer]) is is_so
    assert can_cut([CacheList(KVCache(), layer)]) is is_so
    assert not can_cut([layer, ArraysCache(1)])


def test_a_cache_has_its_parts():
    one, other, third = KVCache(), ArraysCache(1), KVCache()

    assert parts([CacheList(one, other), third]) == [one, other, third]


def test_what_is_kept_is_computed(monkeypatch):
    evaluated = []
    monkeypatch.setattr(mx, "eval", evaluated.append)
    pool = PromptCache(ROOM)

    pool.put("", [1], [layer := KVCache()])

    assert evaluated == [[layer.state]]


tokens = st.lists(st.integers(0, 2), max_size=6)
operations = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("AB"), tokens.filter(bool), st.integers(0, 6), st.booleans()),
    st.tuples(st.just("fetch"), st.sampled_from("AB"), tokens),
    st.tuples(st.just("shrink"), st.integers(0, 400)),
    st.tuples(st.just("clear")),
)


def naive_shared(entry, prompt):
    usable = len(entry.tokens) if entry.is_kept() else entry.prompt_length
    shared = 0
    for one, other in zip(entry.tokens[:usable], prompt[:-1], strict=False):
        if one != other:
            break
        shared += 1
    return shared


@settings(deadline=None, max_examples=200)
@given(st.lists(operations, max_size=25))
def test_any_use_keeps_the_count_right_and_gives_a_true_and_longest_prefix(uses):
    pool = PromptCache(12 * 2 * TOKEN_BYTES)
    for what, *arguments in uses:
        if what == "put":
            owner, added, prompt_length, is_kept = arguments
            prompt_length = min(prompt_length, len(added))
            put(pool, added, owner, prompt_length=prompt_length, is_kept=lambda is_kept=is_kept: is_kept)
        elif what == "fetch":
            owner, prompt = arguments
            known = [naive_shared(entry, prompt) for entry in pool._entries if entry.owner == owner]
            assert fetched(pool, prompt, owner) == max(known, default=0)
        else:
            getattr(pool, what)(*arguments)
        assert pool.nbytes == sum(entry.nbytes for entry in pool._entries) <= pool.max_bytes
        assert pool.nbytes == sum(len(entry.tokens) for entry in pool._entries) * 2 * TOKEN_BYTES


@given(tokens, tokens)
def test_shared_tokens_are_counted(one, other):
    import numpy as np  # noqa: PLC0415

    shared = count_shared(np.array(one, np.int32), np.array(other, np.int32))

    assert one[:shared] == other[:shared]
    assert shared == min(len(one), len(other)) or one[shared] != other[shared]
