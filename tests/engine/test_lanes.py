"""A prompt that can hardly fit waits for its like, and keeps nobody else waiting."""

import asyncio
import threading

import pytest

from engine.errors import TemplateError
from engine.lanes import CHARACTERS_A_TOKEN, Lanes
from engine.mlx_engine import to_prompt
from tests.engine.tiny import make_tokenizer

LIMIT = 100
TEXT = "x" * LIMIT * CHARACTERS_A_TOKEN
SHORT, LONG = ([{"role": "user", "content": text}] for text in ("x", TEXT))
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
REFUSING = "{{ raise_exception('No tools here.') }}"
CALLING = [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": TEXT}}}]}]


@pytest.fixture
def lanes():
    lanes = Lanes()
    yield lanes
    lanes.close()


async def test_a_prompt_that_may_fit_does_not_wait_for_one_that_hardly_can(lanes):
    made, short_made = [], threading.Event()

    def make(_, messages):
        if messages is LONG:
            short_made.wait(10)
        made.append(messages)
        short_made.set()

    await asyncio.gather(*(lanes.run(make, LIMIT, None, messages) for messages in (LONG, LONG, SHORT)))

    assert made == [SHORT, LONG, LONG]


@pytest.mark.parametrize("conversation", [(SHORT, None), (LONG, None), (SHORT, [TOOL])])
async def test_both_make_the_same_prompt(lanes, conversation):
    tokenizer = make_tokenizer()

    made = [await lanes.run(to_prompt, limit, tokenizer, *conversation) for limit in (1, 1_000_000)]

    assert made == [to_prompt(tokenizer, *conversation)] * 2


async def test_no_two_threads_share_a_tokenizer_and_it_is_copied_once(lanes):
    used, tokenizer = [], make_tokenizer()

    def note(tokenizer, *_):
        used.append((tokenizer, threading.current_thread()))

    for messages in (SHORT, LONG, SHORT, LONG):
        await lanes.run(note, LIMIT, tokenizer, messages)

    assert used[0] == used[2] != used[1] == used[3]
    assert used[0][0] is tokenizer is not used[1][0]


@pytest.mark.parametrize("conversation", [(LONG, None), (SHORT, LONG), (CALLING, None)])
async def test_whatever_makes_a_conversation_long_is_counted(lanes, conversation):
    used, given = [], make_tokenizer()

    await lanes.run(lambda tokenizer, *_: used.append(tokenizer), LIMIT, given, *conversation)

    assert used[0] is not given


@pytest.mark.parametrize("limit", [1, 1_000_000])
async def test_a_template_that_refuses_is_told_of(lanes, limit):
    with pytest.raises(TemplateError, match="No tools here"):
        await lanes.run(to_prompt, limit, make_tokenizer(REFUSING), [{"role": "user", "content": "42"}])
