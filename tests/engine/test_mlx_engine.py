import asyncio
import json
import threading
from types import SimpleNamespace

import mlx.core as mx
import mlx_lm
import pytest

from engine.channel import UNREAD_PIECES
from engine.errors import DecodeError, EngineError, LoadError, TemplateError
from engine.hermes import FUNCTIONS
from engine.loading import mlx_engine
from engine.mlx_engine import (
    CPU_PREFILL_STEP,
    GPU_PREFILL_STEP,
    MlxEngine,
    default_prefill_step_size,
)
from engine.pieces import Finish, Reasoning, Sampling, Text, ToolCall
from engine.templates import UNKNOWN_CONTEXT_LENGTH, context_length
from tests.engine.tiny import (
    END,
    START,
    THINK,
    Dictating,
    Reciting,
    Watched,
    load_tokenizer,
    make_tokenizer,
    tokens_of,
)

GREEDY = Sampling(temperature=0, top_p=1, max_tokens=30)
ENDLESS = Sampling(temperature=0, top_p=1, max_tokens=1_000_000)


class Gate:
    """Lets the engine's thread through one call of the model at a time, once it has reached call `closed_from`."""

    def __init__(self, closed_from):
        self.closed_from = closed_from
        self._arrived, self._passes = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, call):
        if call >= self.closed_from:
            self._arrived.release()
            self._passes.acquire()

    async def reached(self):
        await asyncio.to_thread(self._arrived.acquire)

    def open(self):
        self.closed_from = float("inf")
        self._passes.release()


@pytest.fixture
async def start():
    """Load an engine on a model made in its thread; it is closed at the end."""
    engines = []

    async def start(make_model=Watched, make_tokenizer=make_tokenizer, **options):
        made = []

        def load():
            made.append(make_model())
            return made[0], make_tokenizer()

        engine = MlxEngine(load, **options)
        engines.append(engine)
        await engine.load()
        return engine, made[0]

    yield start
    for engine in engines:
        await engine.close()


async def pieces_of(decoding):
    return [piece async for piece in decoding]


def text_of(pieces):
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


class Paused:
    """Tells each time the engine's thread has to wait for the reader of a decode."""

    def __init__(self, channel):
        self._waits = threading.Semaphore(0)
        self._wait, channel._room.wait = channel._room.wait, self._tell_and_wait

    def _tell_and_wait(self, timeout):
        self._waits.release()
        self._wait(60)

    async def again(self):
        await asyncio.to_thread(self._waits.acquire)


# Decoding


async def test_greedy_text_is_what_mlx_lm_generates(start):
    engine, _ = await start()
    prompt = tokens_of("Once upon a time there was a prompt longer than a prefill chunk.")
    reference = Watched()

    pieces = await pieces_of(engine.decode(prompt, GREEDY))

    assert text_of(pieces) == mlx_lm.generate(reference, make_tokenizer(), prompt, max_tokens=30)
    expected = [
        response.text for response in mlx_lm.stream_generate(reference, make_tokenizer(), prompt, max_tokens=30)
    ]
    assert [piece.text for piece in pieces[:-1]] == expected


async def test_a_length_stop_counts_its_tokens(start):
    engine, _ = await start()

    pieces = await pieces_of(engine.decode(tokens_of("Hello"), Sampling(temperature=0, top_p=1, max_tokens=7)))

    assert pieces[-1] == Finish(reason="length", prompt_tokens=5, completion_tokens=7)
    assert len(pieces) == 7 + 1


async def test_an_end_of_sequence_stops_and_is_counted(start):
    engine, _ = await start(lambda: Reciting(tokens_of("abc")))

    pieces = await pieces_of(engine.decode(tokens_of("a"), GREEDY))

    assert pieces == [Text("b"), Text("c"), Text(""), Finish(reason="stop", prompt_tokens=1, completion_tokens=3)]


async def test_a_character_split_over_tokens_arrives_whole(start):
    engine, _ = await start(lambda: Reciting(tokens_of("a😀b")))

    pieces = await pieces_of(engine.decode(tokens_of("a"), GREEDY))

    assert [piece.text for piece in pieces[:-1]] == ["", "", "", "😀", "b", ""]


async def test_a_character_cut_off_by_the_length_limit_is_flushed_as_a_replacement(start):
    engine, _ = await start(lambda: Reciting(tokens_of("a😀b")))

    pieces = await pieces_of(engine.decode(tokens_of("a"), Sampling(temperature=0, top_p=1, max_tokens=2)))

    assert text_of(pieces) == "\N{REPLACEMENT CHARACTER}"


async def test_sampling_runs_on_the_engines_thread(start):
    engine, _ = await start()

    pieces = await pieces_of(engine.decode(tokens_of("Hello"), Sampling(temperature=1, top_p=0.9, max_tokens=5)))

    assert pieces[-1].completion_tokens > 0


async def test_a_top_p_of_zero_leaves_the_likeliest_token(start):
    engine, _ = await start()
    prompt = tokens_of("Hello")

    narrow = await pieces_of(engine.decode(prompt, Sampling(temperature=5, top_p=0, max_tokens=10)))

    assert narrow == await pieces_of(engine.decode(prompt, Sampling(temperature=0, top_p=1, max_tokens=10)))


async def test_decodes_take_their_turns(start):
    engine, _ = await start()
    short = Sampling(temperature=0, top_p=1, max_tokens=5)
    first, second = engine.decode(tokens_of("a"), short), engine.decode(tokens_of("Hello"), short)

    heard = await pieces_of(second)

    assert heard[-1].prompt_tokens == 5
    assert first.is_closed
    assert (await pieces_of(first))[-1].prompt_tokens == 1


# Markers


@pytest.fixture
async def dictate(start, tmp_path):
    """Load an engine whose model knows think blocks and tool calls, and answers the prompt with a text."""
    tokenizer = load_tokenizer(tmp_path)

    async def dictate(text, prompt="?"):
        answer, prompt = (tokenizer.encode(said, add_special_tokens=False) for said in (text, prompt))
        model = lambda: Dictating(answer, len(prompt), vocab_size=END + 1 + len(THINK))  # noqa: E731
        engine, _ = await start(model, lambda: tokenizer)
        return engine, prompt

    return dictate


TOOLS = [{"type": "function", "function": {"name": "time", "description": "", "parameters": {}}}]
CALL = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'


async def test_reasoning_text_and_calls_are_told_apart(dictate):
    engine, prompt = await dictate(f"<think>Hm.</think>\n\nOK{CALL}")

    pieces = await pieces_of(engine.decode(prompt, ENDLESS, TOOLS))

    assert [piece for piece in pieces if piece != Text("")] == [
        *(Reasoning(character) for character in "Hm."),
        *(Text(character) for character in "OK"),
        ToolCall(name="time", arguments="{}"),
        Finish(reason="stop", prompt_tokens=1, completion_tokens=len(pieces) - 1, reasoning_tokens=4),
    ]


async def test_without_tools_a_call_is_text(dictate):
    engine, prompt = await dictate(CALL)

    assert text_of(await pieces_of(engine.decode(prompt, ENDLESS))) == CALL


async def test_a_prompt_may_open_the_think_block(dictate):
    engine, prompt = await dictate("Hm.</think>OK", prompt="<s><think>\n")

    pieces = await pieces_of(engine.decode(prompt, ENDLESS))

    assert pieces[0] == Reasoning("H")
    assert text_of(pieces) == "OK"
    assert pieces[-1].reasoning_tokens == 4


async def test_every_token_in_a_tool_block_gives_a_piece_so_that_a_cancel_is_seen(dictate):
    engine, prompt = await dictate(CALL)

    pieces = await pieces_of(engine.decode(prompt, Sampling(temperature=0, top_p=1, max_tokens=20), TOOLS))

    assert pieces[:-1] == [Text("")] * 20
    assert pieces[-1].reason == "length"


# Stopping


async def test_a_cancel_stops_before_the_next_token(start):
    gate = Gate(closed_from=10)
    engine, model = await start(lambda: Watched(gate))
    decoding = engine.decode(tokens_of("a"), ENDLESS)
    await gate.reached()

    decoding.cancel()
    gate.open()
    await engine.close()

    assert model.calls == 10
    assert await pieces_of(decoding) == []


async def test_a_cancel_in_a_prefill_stops_before_the_next_chunk(start):
    gate = Gate(closed_from=3)
    engine, model = await start(lambda: Watched(gate), prefill_step_size=4)
    decoding = engine.decode(tokens_of("a" * 100), ENDLESS)
    await gate.reached()

    decoding.cancel()
    gate.open()
    await engine.close()

    assert model.calls == 3


async def test_a_cancelled_decode_leaves_the_next_one_untouched(start):
    gate = Gate(closed_from=3)
    engine, _ = await start(lambda: Watched(gate), prefill_step_size=4)
    prompt = tokens_of("a" * 20)
    for cancelled_at in (3, 12):
        gate.closed_from = cancelled_at
        decoding = engine.decode(prompt, ENDLESS)
        await gate.reached()
        decoding.cancel()
        gate.open()

    pieces = await pieces_of(engine.decode(prompt, GREEDY))

    assert text_of(pieces) == mlx_lm.generate(Watched(), make_tokenizer(), prompt, max_tokens=30)


async def test_a_decode_cancelled_while_it_waits_never_starts(start):
    gate = Gate(closed_from=2)
    engine, model = await start(lambda: Watched(gate))
    first, second = engine.decode(tokens_of("a"), ENDLESS), engine.decode(tokens_of("a"), ENDLESS)
    await gate.reached()

    second.cancel()
    first.cancel()
    gate.open()
    await engine.close()

    assert model.calls == 2
    assert await pieces_of(second) == []


async def test_a_reader_that_pauses_pauses_the_model(start):
    engine, model = await start()
    decoding = engine.decode(tokens_of("a"), ENDLESS)
    paused = Paused(decoding)

    await paused.again()
    calls = model.calls
    await anext(decoding)
    await paused.again()

    # One piece is in the thread's hand and mlx-lm computes one token ahead.
    assert calls == UNREAD_PIECES + 2
    assert model.calls == calls + 1
    decoding.cancel()


async def test_the_event_loop_runs_while_the_model_computes(start):
    gate = Gate(closed_from=2)
    engine, _ = await start(lambda: Watched(gate))
    reading = asyncio.create_task(pieces_of(engine.decode(tokens_of("a"), GREEDY)))
    await gate.reached()

    for _ in range(100):
        await asyncio.sleep(0)
    assert not reading.done()
    gate.open()

    assert (await reading)[-1].completion_tokens == 30


async def test_closing_breaks_off_the_running_decode_and_those_that_wait(start):
    gate = Gate(closed_from=5)
    engine, model = await start(lambda: Watched(gate))
    decodings = [engine.decode(tokens_of("a"), ENDLESS) for _ in range(3)]
    await gate.reached()

    closing = asyncio.create_task(engine.close())
    for decoding in [*decodings, engine.decode(tokens_of("a"), GREEDY)]:
        with pytest.raises(DecodeError, match="closed"):
            await pieces_of(decoding)
    assert not closing.done()
    gate.open()
    await closing

    assert model.calls == 5
    assert not engine.healthy
    with pytest.raises(EngineError):
        await engine.tokenize([])


async def test_closing_twice_or_before_the_load_is_allowed():
    engine = MlxEngine(lambda: (Watched(), make_tokenizer()))

    await engine.close()
    await engine.close()


# Breaking


async def test_a_decode_that_breaks_tells_its_reader_and_the_next_one_runs(start):
    error = ValueError("from the model")

    def break_once(call):
        if call == 2:
            raise error

    engine, _ = await start(lambda: Watched(break_once))

    with pytest.raises(DecodeError) as caught:
        await pieces_of(engine.decode(tokens_of("a"), GREEDY))

    assert caught.value.__cause__ is error
    assert (await pieces_of(engine.decode(tokens_of("a"), GREEDY)))[-1].completion_tokens == 30
    assert engine.healthy


async def test_an_empty_prompt_breaks_only_its_own_decode(start):
    engine, _ = await start()

    with pytest.raises(DecodeError):
        await pieces_of(engine.decode([], GREEDY))

    assert engine.healthy


async def test_a_thread_that_dies_leaves_nobody_waiting(start):
    gate = Gate(closed_from=2)

    def die(call):
        gate(call)
        if call == 2:
            raise SystemExit

    engine, _ = await start(lambda: Watched(die))
    running, waiting = engine.decode(tokens_of("a"), GREEDY), engine.decode(tokens_of("a"), GREEDY)
    await gate.reached()
    assert engine.healthy

    gate.open()

    for decoding in (running, waiting, engine.decode(tokens_of("a"), GREEDY)):
        with pytest.raises(DecodeError, match="died"):
            await pieces_of(decoding)
    assert not engine.healthy


# Loading


async def test_a_load_that_fails_says_so_and_leaves_nobody_waiting():
    def load():
        raise RuntimeError

    engine = MlxEngine(load)
    decoding = engine.decode([1], GREEDY)

    with pytest.raises(LoadError, match="RuntimeError"):
        await engine.load()
    with pytest.raises(DecodeError):
        await pieces_of(decoding)
    assert not engine.healthy
    await engine.close()


@pytest.mark.parametrize(
    ("source", "files", "sentence"),
    [
        ("absent", [], "give a model folder"),
        ("file", ["file"], "is a file"),
        ("folder", ["folder/readme.md"], "no config.json"),
        ("folder", ["folder/config.json"], "no model"),
        ("folder", ["folder/config.json", "folder/model.safetensors"], "could not be loaded: JSONDecodeError"),
    ],
)
async def test_a_folder_that_is_no_model_is_refused_in_one_sentence(tmp_path, source, files, sentence):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    engine = mlx_engine(str(tmp_path / source))

    with pytest.raises(LoadError, match=sentence) as caught:
        await engine.load()

    assert "\n" not in str(caught.value)
    await engine.close()


async def test_an_unreachable_hub_is_told_from_a_model_that_is_not_there(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    engine = mlx_engine("nobody/no-such-model")

    with pytest.raises(LoadError, match="could not be reached"):
        await engine.load()

    await engine.close()


@pytest.mark.parametrize(
    ("stated", "tokenizer_limit", "length"),
    [
        ({"max_position_embeddings": 4096}, None, 4096),
        ({"max_position_embeddings": 4096}, 2048, 2048),
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 512}}, None, 512),
        ({"n_positions": 1024}, 8192, 1024),
        ({}, 2048, 2048),
        ({"text_config": None}, None, UNKNOWN_CONTEXT_LENGTH),
    ],
)
def test_the_context_length_is_the_least_that_is_stated(stated, tokenizer_limit, length):
    limits = {"model_max_length": tokenizer_limit} if tokenizer_limit else {}

    found = context_length(SimpleNamespace(args=SimpleNamespace(**stated)), make_tokenizer(**limits))

    assert found == length


async def test_a_loaded_engine_knows_its_context_length(start):
    engine, _ = await start(lambda: Watched(max_position_embeddings=512))

    assert engine.context_length == 512


def test_prefill_chunks_are_short_where_they_are_slow(monkeypatch):
    for kind, size in ((mx.cpu, CPU_PREFILL_STEP), (mx.gpu, GPU_PREFILL_STEP)):
        monkeypatch.setattr(mx, "default_device", lambda kind=kind: SimpleNamespace(type=kind))
        assert default_prefill_step_size() == size


# Templates


async def test_messages_become_the_tokens_of_the_template(start):
    engine, _ = await start()

    prompt = await engine.tokenize([{"role": "user", "content": "Hi"}])

    assert prompt == [START, *tokens_of("Hi"), END, START]


async def test_a_template_that_refuses_gives_its_own_reason(start):
    engine, _ = await start()

    with pytest.raises(TemplateError) as caught:
        await engine.tokenize([{"role": "narrator", "content": "42"}])

    assert str(caught.value) == "No narrator."


async def test_a_tokenizer_without_a_template_is_refused(start):
    engine, _ = await start(make_tokenizer=lambda: make_tokenizer(template=None))

    with pytest.raises(TemplateError, match="no chat template"):
        await engine.tokenize([{"role": "user", "content": "Hi"}])


async def test_tools_reach_the_template(dictate):
    engine, _ = await dictate("")

    prompt = await engine.tokenize([{"role": "user", "content": "Hi"}], TOOLS)

    assert prompt == [START, *tokens_of("Hi"), END, START, *tokens_of(json.dumps(TOOLS))]


async def test_a_template_that_knows_no_tools_is_told_of_them_in_the_system_message(start):
    engine, _ = await start()
    user = {"role": "user", "content": "Hi"}

    prompt = await engine.tokenize([{"role": "system", "content": "Be brief."}, user], TOOLS)

    told = FUNCTIONS.format(tools=json.dumps(TOOLS[0]))
    assert prompt == await engine.tokenize([{"role": "system", "content": f"Be brief.\n\n{told}"}, user])


async def test_a_model_whose_tokenizer_knows_no_calls_writes_those_it_was_told_of(start):
    engine, _ = await start(lambda: Dictating(tokens_of(CALL), 1))

    pieces = await pieces_of(engine.decode(tokens_of("?"), ENDLESS, TOOLS))

    assert text_of(pieces) == ""
    assert ToolCall(name="time", arguments="{}") in pieces
