from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.chat_templates import muse_spark as muse_spark_format
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tool_parsers import muse_spark

from engine.markers import Markers
from engine.pieces import Reasoning, Text, ToolCall
from tests.engine.tiny import THINK, load_tokenizer, make_fast_tokenizer

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}
    for name in ("time", "weather")
]
TIME = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
OSLO = '<tool_call>{"name": "weather", "arguments": {"city": "Malmö"}}</tool_call>'
TIME_CALL = ToolCall(name="time", arguments="{}")
OSLO_CALL = ToolCall(name="weather", arguments='{"city": "Malmö"}')
PROSE = "<tool_call>this is no JSON</tool_call>"


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    return lambda *args: load_tokenizer(tmp_path_factory.mktemp("tokenizer"), *args)


@pytest.fixture(scope="module")
def tokenizer(load):
    return load()


def said(tokenizer, tokens, *, tools=TOOLS, reason="stop", prompt=""):
    """The pieces of an answer, a string a token, with neighbours of a kind joined."""
    markers = Markers(tokenizer, tokenizer.encode(prompt, add_special_tokens=False), tools)
    pieces = [piece for token in tokens for piece in markers.read(token)]
    return list(joined(pieces + markers.end(reason)))


def joined(pieces):
    for kind, group in groupby((piece for piece in pieces if piece != Text("")), type):
        if kind is ToolCall:
            yield from group
        else:
            yield kind("".join(piece.text for piece in group))


# fmt: off
ANSWERS = [
    ("plain text",                        "Hello.",                          [Text("Hello.")]),
    ("nothing",                           "",                                []),
    ("whitespace alone",                  " \n ",                            []),
    ("whitespace before text",            "\n  Hello. ",                     [Text("\n  Hello. ")]),
    ("reasoning then text",               "<think>\nHm.</think>\n\nHello.",  [Reasoning("Hm."), Text("Hello.")]),
    ("reasoning alone",                   "<think>Hm.</think>\n",            [Reasoning("Hm.")]),
    ("reasoning without an end",          "<think>Hm. </thi",                [Reasoning("Hm. </thi")]),
    ("empty reasoning",                   "<think>\n\n</think>\n\nHello.",   [Text("Hello.")]),
    ("text then reasoning",               "So: <think>Hm.</think> Yes.",
                                          [Text("So: "), Reasoning("Hm."), Text("Yes.")]),
    ("a call",                            TIME,                              [TIME_CALL]),
    ("two calls",                         f"{TIME}\n{OSLO}\n",               [TIME_CALL, OSLO_CALL]),
    ("whitespace then a call",            f"\n\n{TIME}",                     [TIME_CALL]),
    ("text then a call",                  f"I look.\n{TIME}",                [Text("I look.\n"), TIME_CALL]),
    ("a call then text",                  f"{TIME}\n\nDone.",                [TIME_CALL, Text("Done.")]),
    ("reasoning then a call",             f"<think>Hm.</think>\n\n{TIME}",   [Reasoning("Hm."), TIME_CALL]),
    ("a call out of reasoning",           f"<think>Hm.{TIME}\nDone.",
                                          [Reasoning("Hm."), TIME_CALL, Text("Done.")]),
    ("a false alarm",                     PROSE,                             [Text(PROSE)]),
    ("a false alarm amid text",           f" Like {PROSE} so.",              [Text(f" Like {PROSE} so.")]),
    ("a false alarm then a call",         f"{PROSE}\n{TIME}",                [Text(f"{PROSE}\n"), TIME_CALL]),
    ("a false alarm while reasoning",     f"<think>Like {PROSE} so.</think>Yes.",
                                          [Reasoning(f"Like {PROSE} so."), Text("Yes.")]),
    ("a start marker before a call",      f"I use <tool_call>: {TIME}",      [Text("I use <tool_call>: "), TIME_CALL]),
    ("a start marker while reasoning",    f"<think>I use <tool_call>.</think>\n{TIME} Done.",
                                          [Reasoning("I use <tool_call>."), TIME_CALL, Text("Done.")]),
    ("start markers alone while reasoning", "<think>I use <tool_call>.</think>\nYes. <tool_call>",
                                          [Reasoning("I use <tool_call>."), Text("Yes. <tool_call>")]),
    ("a call without its end marker",     TIME.removesuffix("</tool_call>"), [TIME_CALL]),
    ("a call cut off",                    'Hm <tool_call>{"name": "ti',      [Text('Hm <tool_call>{"name": "ti')]),
    ("half an end marker",                "<tool_call>no</tool",             [Text("<tool_call>no</tool")]),
    ("half a start marker",               "a < b <tool_ca",                  [Text("a < b <tool_ca")]),
]
# fmt: on


@pytest.mark.parametrize(("answer", "pieces"), [pytest.param(*row, id=name) for name, *row in ANSWERS])
def test_an_answer_is_told_apart_wherever_it_is_split(tokenizer, answer, pieces):
    assert said(tokenizer, [answer]) == pieces
    assert said(tokenizer, answer) == pieces
    for cut in range(1, len(answer)):
        assert said(tokenizer, [answer[:cut], answer[cut:]]) == pieces


FRAGMENTS = (
    *THINK,
    "<tool_call>",
    "</tool_call>",
    TIME,
    PROSE,
    "{",
    " ",
    "\n",
    "a",
    "<",
    "</tool",
    "<tool_call",
    "<thi",
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)


@settings(deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 200)), tools=st.sampled_from([TOOLS, None]), data=st.data())
def test_any_split_into_tokens_says_the_same(tokenizer, text, cuts, tools, data):
    reason, prompt = data.draw(st.sampled_from(["stop", "length"])), data.draw(st.sampled_from(["", "<think>"]))
    bounds = sorted(min(cut, len(text)) for cut in [0, *cuts, len(text)])
    tokens = [text[start:end] for start, end in pairwise(bounds)]

    split = said(tokenizer, tokens, tools=tools, reason=reason, prompt=prompt)

    assert split == said(tokenizer, [text], tools=tools, reason=reason, prompt=prompt)
    assert all(piece.text.strip() for piece in split if not isinstance(piece, ToolCall))


@settings(deadline=None)
@given(
    text=st.lists(st.sampled_from([word for word in FRAGMENTS if word not in (*THINK, TIME)]), max_size=12).map("".join)
)
def test_what_is_no_marker_is_said_to_the_letter(tokenizer, text):
    assert said(tokenizer, text) == ([Text(text)] if text.strip() else [])


@settings(deadline=None)
@given(text=TEXTS.filter(lambda text: "<think>" not in text))
def test_without_tools_their_markers_are_text(tokenizer, text):
    for tools in (None, []):
        assert said(tokenizer, text, tools=tools) == ([Text(text)] if text.strip() else [])


def test_without_tools_their_markers_are_reasoning_in_reasoning(tokenizer):
    answer = f"<think>{TIME}</think>{TIME}"

    assert said(tokenizer, answer, tools=None) == [Reasoning(TIME), Text(TIME)]


@pytest.mark.parametrize(
    ("answer", "pieces"),
    [
        ("Hello", [Text("Hello")]),
        ("Hello <tool", [Text("Hello <tool")]),
        (" ", []),
        ("<think>Hm. </th", [Reasoning("Hm. </th")]),
        (f"{TIME}<tool_call>{{", [TIME_CALL]),
        ('Hm <tool_call>{"name": "time"}', [Text("Hm ")]),
        ('Hm <tool_call>{"name": "time"}</tool_call', [Text("Hm ")]),
        ("<think>Hm. <tool_call>{", [Reasoning("Hm. ")]),
    ],
)
def test_a_length_limit_gives_what_was_held_back_but_an_open_tool_block(tokenizer, answer, pieces):
    assert said(tokenizer, answer, reason="length") == pieces


def test_each_token_gives_a_piece(tokenizer):
    markers = Markers(tokenizer, [], TOOLS)

    assert [markers.read(token) for token in ("\n", "<tool", "_call>", "no", "</tool_call>", "", "a <", "think>b")] == [
        [Text("")],
        [Text("")],
        [Text("")],
        [Text("")],
        [Text("\n<tool_call>no</tool_call>")],
        [Text("")],
        [Text("a ")],
        [Reasoning("b")],
    ]


def test_a_token_can_give_several_pieces(tokenizer):
    assert Markers(tokenizer, [], TOOLS).read(f"<think>a</think>b{TIME}c") == [
        Reasoning("a"),
        Text("b"),
        TIME_CALL,
        Text("c"),
    ]


@pytest.mark.parametrize(
    ("tokens", "prompt", "count"),
    [
        (["a", "b"], "", 0),
        (["<think>", "a", "", "</think>", "b"], "", 3),
        (["a", "</", "think>", "b"], "<think>", 3),
        (["<think>", "a", "<tool_call>", "b", "</tool_call>"], "", 2),
    ],
)
def test_tokens_read_while_reasoning_are_counted(tokenizer, tokens, prompt, count):
    markers = Markers(tokenizer, tokenizer.encode(prompt, add_special_tokens=False), TOOLS)
    for token in tokens:
        markers.read(token)

    assert markers.reasoning_tokens == count


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("<s>", Text),
        ("<s><think>", Reasoning),
        ("<s><think>\n", Reasoning),
        ("<s><think>a</think>b</s><s><think>\n", Reasoning),
        ("<s><think>\n\n</think>\n\n", Text),
        ("What is <think>?</s><s>", Text),
    ],
)
def test_an_answer_begins_as_reasoning_if_its_prompt_ends_in_the_start_of_a_think_block(tokenizer, prompt, kind):
    assert said(tokenizer, "Hm.", prompt=prompt) == [kind("Hm.")]


def test_whitespace_after_a_start_marker_in_the_prompt_is_not_said(tokenizer):
    assert said(tokenizer, "\n\nHm.</think>Yes.", prompt="<think>") == [Reasoning("Hm."), Text("Yes.")]


# What parsers give


@pytest.mark.parametrize(
    ("block", "call"),
    [
        ('{"name": "gone", "arguments": {"a": [1, null]}}', ToolCall(name="gone", arguments='{"a": [1, null]}')),
        ('{"name": "time"}', TIME_CALL),
        ('{"name": "time", "arguments": null}', TIME_CALL),
        ('{"name": "time", "arguments": ""}', TIME_CALL),
        ('{"name": "time", "arguments": "{\\"a\\":1}"}', ToolCall(name="time", arguments='{"a":1}')),
        ('{"name": "time", "arguments": {}, "id": "c1"}', ToolCall(name="time", arguments="{}", call_id="c1")),
        ('{"name": "time", "arguments": {}, "id": 1}', TIME_CALL),
        ('{"name": "time", "arguments": {}, "id": ""}', TIME_CALL),
    ],
)
def test_a_call_is_its_name_and_its_arguments_as_json(tokenizer, block, call):
    assert said(tokenizer, f"<tool_call>{block}</tool_call>") == [call]


def test_one_block_may_hold_several_calls(tokenizer):
    answer = '<tool_call>[{"name": "time"}, {"name": "weather", "arguments": {"city": "Malmö"}}]</tool_call>'

    assert said(tokenizer, answer) == [TIME_CALL, OSLO_CALL]


@pytest.mark.parametrize(
    "block",
    [
        "",
        "[]",
        "7",
        '"time"',
        "{}",
        '{"name": ""}',
        '{"name": 7}',
        '[{"name": "time"}, 7]',
        '{"name": "time", "arguments": {"a": NaN}}',
        '{"name": "time", "arguments": {"a": "\\ud800"}}',
        '{"name": "time", "arguments": "\\ud800"}',
        '{"name": "\\ud800"}',
        "[" * 100_000,
    ],
    ids=lambda block: block[:50],
)
def test_what_is_no_call_is_text(tokenizer, block):
    answer = f"<tool_call>{block}</tool_call>"

    assert said(tokenizer, [answer]) == [Text(answer)]


def test_a_parser_may_raise_anything(tokenizer):
    def trip(text, tools):
        raise AttributeError

    wrapper = TokenizerWrapper(
        make_fast_tokenizer(), tool_call_start="<call>", tool_call_end="</call>", tool_parser=trip
    )

    assert said(wrapper, "a <call>b</call> c") == [Text("a <call>b</call> c")]


# Other models' markers

CITY = '{"city": "Malmö"}'
MISTRAL = f"[TOOL_CALLS]time[ARGS]{{}}weather[ARGS]{CITY}"
MISTRAL_JSON = f"""[TOOL_CALLS][
    {{"name": "time", "arguments": {{}}, "id": "a1"}},
    {{"name": "weather", "arguments": {CITY}}}
]"""
QWEN3_CODER = """
<tool_call>
<function=time>
</function>
</tool_call>
<tool_call>
<function=weather>
<parameter=city>
Malmö
</parameter>
</function>
</tool_call>"""
PYTHONIC = "<|tool_call_start|>[time(), weather(city='Malmö')]<|tool_call_end|>"
KIMI_K2 = (
    "<|tool_calls_section_begin|>"
    "<|tool_call_begin|>functions.time:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    f"<|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>{CITY}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)


@pytest.mark.parametrize(
    ("template", "answer", "call_ids"),
    [
        ("[TOOL_CALLS]", MISTRAL, [None, None]),
        ("[TOOL_CALLS]", MISTRAL_JSON, ["a1", None]),
        ("<tool_call>\n<function=", QWEN3_CODER, [None, None]),
        ("<|tool_call_start|>", PYTHONIC, [None, None]),
        ("<|tool_calls_section_begin|>", KIMI_K2, ["functions.time:0", "functions.weather:1"]),
    ],
    ids=["mistral", "mistral's JSON", "qwen3 coder", "pythonic", "kimi k2"],
)
def test_each_format_that_mlx_lm_recognises_gives_the_same_calls(load, template, answer, call_ids):
    tokenizer = load(f"{{# {template} #}}", ())
    first, second = call_ids

    assert said(tokenizer, answer) == [
        ToolCall(name="time", arguments="{}", call_id=first),
        ToolCall(name="weather", arguments=CITY, call_id=second),
    ]


def test_a_block_that_ends_with_the_answer_alone_can_be_a_false_alarm(load):
    tokenizer = load("{# [TOOL_CALLS] #}", ())

    assert said(tokenizer, "Write [TOOL_CALLS] first.") == [Text("Write [TOOL_CALLS] first.")]
    assert said(tokenizer, "[TOOL_CALLS]time[ARGS]{}", reason="length") == []


def test_gemmas_think_block_of_several_tokens_may_be_opened_by_the_prompt(load):
    tokenizer = load("", ("<|channel>", "<channel|>"))

    assert said(tokenizer, "Hm.<channel|>Yes.", prompt="<|channel>thought\n") == [Reasoning("Hm."), Text("Yes.")]
    assert said(tokenizer, "<|channel>thought\nHm.<channel|>Yes.") == [Reasoning("Hm."), Text("Yes.")]


@pytest.mark.parametrize("tools", [TOOLS, None])
def test_markers_that_only_frame_an_answer_are_not_said(load, tools):
    tokenizer = load("", ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"))
    response = "<|open|>response<|sep|>Yes.\n<|close|>response<|sep|>"
    answer = f"<|open|>think<|sep|>Hm.<|close|>think<|sep|>{response}{response}<|close|>message<|sep|>"

    assert said(tokenizer, answer, tools=tools) == [Reasoning("Hm."), Text("Yes.\nYes.\n")]
    assert said(tokenizer, " <|open|>response<|sep|> Yes.", tools=tools) == [Text("  Yes.")]


@pytest.mark.parametrize(("kind", "value"), [("integer", "7"), ("string", '"7"')])
def test_a_parser_knows_the_types_of_the_tools(load, kind, value):
    tokenizer = load("{# <tool_call>\n<function= #}", ())
    parameters = {"type": "object", "properties": {"hour": {"type": kind}}}
    tools = [{"type": "function", "function": {"name": "time", "description": "", "parameters": parameters}}]

    pieces = said(
        tokenizer, "<tool_call><function=time><parameter=hour>7</parameter></function></tool_call>", tools=tools
    )

    assert pieces == [ToolCall(name="time", arguments=f'{{"hour": {value}}}')]


@pytest.fixture
def headed():
    """A model whose every message begins with a header, which is a state of its own."""
    return TokenizerWrapper(
        make_fast_tokenizer(),
        tool_call_start=muse_spark.tool_call_start,
        tool_call_end=muse_spark.tool_call_end,
        tool_parser=muse_spark.parse_tool_call,
        response_format=muse_spark_format.RESPONSE_FORMAT,
    )


INVOKE = '<atem:invoke name="time"></atem:invoke>'


def test_headers_are_not_shown(headed):
    answer = (
        "to=self<|message|>Hm.<|eom|>assistant to=user<|message|>Yes.<|eom|>"
        f"<atem:function_calls>{INVOKE}</atem:function_calls>"
    )

    assert said(headed, answer) == [Reasoning("Hm."), Text("Yes."), TIME_CALL]


def test_a_false_alarm_in_a_header_is_text(headed):
    answer = "<atem:function_calls>none</atem:function_calls>"

    assert said(headed, answer) == [Text(answer)]
    assert said(headed, answer, tools=None) == [Text(answer)]
