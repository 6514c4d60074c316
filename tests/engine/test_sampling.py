import mlx.core as mx
import pytest

from engine.pieces import Sampling
from engine.sampling import SeededSampler, to_processors, to_sampler

VOCABULARY = 50


@pytest.fixture
def logprobs():
    logits = mx.random.normal((1, VOCABULARY), key=mx.random.key(3)) * 2
    return logits - mx.logsumexp(logits)


def sampling(**options):
    return Sampling(**({"temperature": 1.0, "top_p": 1.0, "max_tokens": 100} | options))


def choices(sampler, logprobs, count=30):
    return [sampler(logprobs).item() for _ in range(count)]


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"top_p": 0}, {"temperature": 1e-30}, {"temperature": 5e-324, "seed": 1}]
)
def test_what_leaves_the_likeliest_token_takes_it(logprobs, options):
    sampler = to_sampler(sampling(**options))

    assert set(choices(sampler, logprobs)) == {mx.argmax(logprobs).item()}


@pytest.mark.parametrize("temperature", [1e-3, 1e-2])
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32])
def test_a_low_temperature_all_but_takes_the_likeliest(logprobs, temperature, dtype):
    for seed in (None, 1):
        sampler = to_sampler(sampling(temperature=temperature, seed=seed))

        assert set(choices(sampler, logprobs.astype(dtype))) == {mx.argmax(logprobs).item()}


def test_equal_settings_without_a_seed_share_a_sampler_so_that_a_batch_draws_at_once():
    assert to_sampler(sampling(temperature=0.7)) is to_sampler(sampling(temperature=0.7, presence_penalty=1.0))
    assert to_sampler(sampling(temperature=0.7)) is not to_sampler(sampling(temperature=0.8))
    assert to_sampler(sampling(temperature=0)) is to_sampler(sampling(temperature=0, seed=7))
    assert to_sampler(sampling(seed=7)) is not to_sampler(sampling(seed=7))


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63, -(2**70), 10**40])
def test_a_seed_repeats_its_choices_whatever_else_draws(logprobs, seed):
    first = choices(to_sampler(sampling(seed=seed)), logprobs)
    again, other = to_sampler(sampling(seed=seed)), to_sampler(sampling())

    repeated = []
    for _ in range(30):
        other(logprobs)
        mx.random.uniform()
        repeated.append(again(logprobs).item())

    assert repeated == first
    assert len(set(first)) > 5


def test_seeds_differ(logprobs):
    drawn = [tuple(choices(to_sampler(sampling(seed=seed)), logprobs)) for seed in (-2, -1, 0, 1, 2, 2**32, 2**33)]

    assert len(set(drawn)) == 7


def test_a_seeded_sampler_can_go_back_to_a_place(logprobs):
    sampler = to_sampler(sampling(seed=7))
    drawn = choices(sampler, logprobs)

    sampler.place = 10

    assert choices(sampler, logprobs, 20) == drawn[10:]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_a_seeded_sampler_draws_by_probability(logprobs, temperature):
    sampler = SeededSampler(1, temperature, 1.0)
    drawn = choices(sampler, logprobs, 3000)
    expected = mx.softmax(logprobs / temperature)[0].tolist()

    shares = [drawn.count(token) / len(drawn) for token in range(VOCABULARY)]

    assert max(abs(share - probability) for share, probability in zip(shares, expected, strict=True)) < 0.03


@pytest.mark.parametrize("seed", [None, 5])
def test_top_p_leaves_the_least_set_of_tokens_that_reaches_it(logprobs, seed):
    order = mx.argsort(-logprobs[0]).tolist()
    mass, nucleus = 0.0, set()
    for token in order:
        nucleus.add(token)
        mass += mx.exp(logprobs[0, token]).item()
        if mass >= 0.6:
            break

    drawn = choices(to_sampler(sampling(top_p=0.6, temperature=2.0, seed=seed)), logprobs, 400)

    assert set(drawn) <= nucleus
    assert len(set(drawn)) == len(nucleus) > 3


def penalised(options, prompt, answer):
    logits = mx.zeros((1, 10))
    for processor in to_processors(sampling(**options), len(prompt)):
        logits = processor(mx.array([*prompt, *answer]), logits)
    return logits[0].tolist()


def test_no_penalty_is_no_processor():
    assert to_processors(sampling(), 3) == []


def test_a_presence_penalty_counts_once_and_a_frequency_penalty_each_time():
    answer = [1, 2, 2, 2]

    assert penalised({"presence_penalty": 1.5}, [], answer)[:4] == [0, -1.5, -1.5, 0]
    assert penalised({"frequency_penalty": 0.5}, [], answer)[:4] == [0, -0.5, -1.5, 0]
    assert penalised({"presence_penalty": 1.0, "frequency_penalty": 0.5}, [], answer)[:4] == [0, -1.5, -2.5, 0]
    assert penalised({"presence_penalty": -2.0}, [], answer)[:4] == [0, 2, 2, 0]


def test_penalties_look_at_the_whole_answer_and_not_at_the_prompt():
    answer = [3, *[4] * 60]

    assert penalised({"presence_penalty": 1.0}, [5, 5, 6], answer)[3:7] == [-1, -1, 0, 0]
    assert penalised({"frequency_penalty": 1.0}, [5, 5, 6], answer)[3:7] == [-1, -60, 0, 0]
    assert penalised({"presence_penalty": 1.0}, [5, 5, 6], []) == [0] * 10
