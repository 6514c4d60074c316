import asyncio

import pytest

from engine.errors import DecodeError, TemplateError
from engine.pieces import Finish, Reasoning, Sampling, Text, ToolCall
from engine.scripted import Pause, ScriptedEngine, call, say, stop, think

SAMPLING = Sampling(temperature=0, top_p=1, max_tokens=10)
FINISH = Finish(reason="stop", prompt_tokens=3, completion_tokens=2)


async def pieces_of(decoding):
    return [piece async for piece in decoding]


async def test_a_decode_plays_the_script():
    engine = ScriptedEngine(say("Hello ", "world", prompt_tokens=3))

    assert await pieces_of(engine.decode([1, 2, 3], SAMPLING)) == [Text("Hello "), Text("world"), FINISH]


async def test_a_script_can_hold_reasoning_and_calls():
    calls = call("time", '{"zone":"CET"}', "call_7") + call("weather", {"city": "Oslo"})
    engine = ScriptedEngine(think("Look ", "it up.") + calls + stop("length", reasoning_tokens=2))

    assert await pieces_of(engine.decode([], SAMPLING)) == [
        Reasoning("Look "),
        Reasoning("it up."),
        ToolCall(name="time", arguments='{"zone":"CET"}', call_id="call_7"),
        ToolCall(name="weather", arguments='{"city": "Oslo"}'),
        Finish(reason="length", prompt_tokens=0, completion_tokens=0, reasoning_tokens=2),
    ]


async def test_the_same_script_is_played_for_every_decode():
    engine = ScriptedEngine(say("Hello"))

    assert await pieces_of(engine.decode([], SAMPLING)) == await pieces_of(engine.decode([], SAMPLING))


async def test_queued_scripts_are_played_first_one_a_decode():
    engine = ScriptedEngine(say("later"))
    engine.scripts.extend([say("first"), say("second")])

    heard = [(await pieces_of(engine.decode([], SAMPLING)))[0].text for _ in range(3)]

    assert heard == ["first", "second", "later"]


async def test_an_exception_in_the_script_is_raised_after_the_pieces_before_it():
    decoding = ScriptedEngine([Text("a"), DecodeError("broke")]).decode([], SAMPLING)

    assert await anext(decoding) == Text("a")
    with pytest.raises(DecodeError, match="broke"):
        await anext(decoding)
    assert await pieces_of(decoding) == []


async def test_a_script_without_a_finish_just_ends():
    assert await pieces_of(ScriptedEngine([Text("a")]).decode([], SAMPLING)) == [Text("a")]


async def test_a_pause_holds_the_decode_until_it_is_resumed():
    pause = Pause()
    engine = ScriptedEngine([Text("a"), pause, Text("b")])
    reading = asyncio.create_task(pieces_of(engine.decode([], SAMPLING)))

    await pause.reached.wait()
    assert engine.decodings[0].played == 1
    pause.resume.set()

    assert await reading == [Text("a"), Text("b")]


async def test_a_cancel_ends_a_decode_in_its_pause():
    pause = Pause()
    engine = ScriptedEngine([Text("a"), pause, Text("b")])
    decoding = engine.decode([], SAMPLING)
    reading = asyncio.create_task(pieces_of(decoding))
    await pause.reached.wait()

    decoding.cancel()
    decoding.cancel()

    assert await reading == [Text("a")]
    assert engine.cancelled == 1


async def test_a_cancel_before_the_first_piece_leaves_nothing_to_read():
    engine = ScriptedEngine(say("Hello"))
    decoding = engine.decode([], SAMPLING)

    decoding.cancel()

    assert await pieces_of(decoding) == []
    assert engine.cancelled == 1


async def test_a_cancel_after_the_finish_does_not_count():
    engine = ScriptedEngine(say("Hello"))
    decoding = engine.decode([], SAMPLING)
    async for piece in decoding:
        if isinstance(piece, Finish):
            break

    decoding.cancel()

    assert engine.cancelled == 0


async def test_a_reader_cancelled_in_a_pause_loses_no_piece():
    pause = Pause()
    decoding = ScriptedEngine([pause, Text("a")]).decode([], SAMPLING)
    reading = asyncio.create_task(pieces_of(decoding))
    await pause.reached.wait()
    reading.cancel()
    await asyncio.wait([reading])

    pause.resume.set()

    assert await pieces_of(decoding) == [Text("a")]


async def test_it_remembers_what_it_was_asked():
    engine = ScriptedEngine(say("Hello"))
    messages = [{"role": "user", "content": "one two one"}, {"role": "assistant", "content": None}]

    prompt = await engine.tokenize(messages)
    engine.decode(prompt, SAMPLING)

    assert prompt == [1, 2, 1]
    assert engine.conversations == [messages]
    assert engine.decodes == [([1, 2, 1], SAMPLING)]


async def test_it_remembers_the_tools_it_was_given():
    engine = ScriptedEngine(say("Hello"))
    tools = [{"type": "function", "function": {"name": "time"}}]

    for given in (tools, None):
        engine.decode(await engine.tokenize([], given), SAMPLING, given)

    assert engine.tools_templated == [tools, None]
    assert engine.tools_decoded == [tools, None]


async def test_a_longer_conversation_starts_with_the_tokens_of_the_shorter():
    engine = ScriptedEngine()
    start = [{"role": "user", "content": "one two"}]

    short, longer = await engine.tokenize(start), await engine.tokenize([*start, {"role": "user", "content": "two 3"}])

    assert longer == [*short, 2, 3]


async def test_a_template_error_that_was_set_is_raised():
    engine = ScriptedEngine()
    engine.template_error = TemplateError("Roles must alternate.")

    with pytest.raises(TemplateError, match="Roles must alternate"):
        await engine.tokenize([])


async def test_closing_breaks_off_a_decode_and_tells_its_reader():
    pause = Pause()
    engine = ScriptedEngine([Text("a"), pause])
    await engine.load()
    reading = asyncio.create_task(pieces_of(engine.decode([], SAMPLING)))
    await pause.reached.wait()

    await engine.close()

    with pytest.raises(DecodeError):
        await reading
    assert not engine.healthy
    assert engine.cancelled == 0
