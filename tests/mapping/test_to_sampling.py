"""From a request's sampling settings to the engine's."""

import pytest

from engine.pieces import Sampling
from handlers.mapping.to_sampling import LOGPROBS, to_sampling
from handlers.wire.request import CreateResponse

ROOM = 100


def test_what_is_left_out_is_the_specifications_default():
    assert to_sampling(CreateResponse(), ROOM) == Sampling(temperature=1, top_p=1, max_tokens=ROOM)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"temperature": 0.0}, {"temperature": 0}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"max_output_tokens": 7}, {"max_tokens": 7}),
        ({"max_output_tokens": ROOM + 1}, {"max_tokens": ROOM}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {"seed": -1}),
        ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
        ({"frequency_penalty": -2.0}, {"frequency_penalty": -2}),
        ({"stop": "END"}, {"stop": ("END",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": []}, {"stop": ()}),
        ({"top_logprobs": 0}, {"top_logprobs": None}),
        ({"top_logprobs": 5}, {"top_logprobs": 5}),
        ({"include": [LOGPROBS]}, {"top_logprobs": 0}),
        ({"include": [LOGPROBS], "top_logprobs": 20}, {"top_logprobs": 20}),
        ({"include": ["reasoning.encrypted_content", "whatever"]}, {"top_logprobs": None}),
    ],
)
def test_a_setting_reaches_the_engine(asked, given):
    plain = {"temperature": 1.0, "top_p": 1.0, "max_tokens": ROOM}

    assert to_sampling(CreateResponse(**asked), ROOM) == Sampling(**(plain | given))
