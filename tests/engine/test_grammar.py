"""What an answer may be: walked token by token, and decoded by a model that would write anything else."""

import json
from types import SimpleNamespace

import mlx.core as mx
import pytest

from engine.errors import GrammarError
from engine.grammar import Compiler
from engine.mlx_engine import MlxEngine
from engine.pieces import Constraint, Finish, Sampling, Text, ToolCall
from tests.engine.tiny import END, START, THINK, Watched, load_tokenizer, make_tokenizer

ANSWER = {
    "type": "object",
    "properties": {"word": {"enum": ["yes", "no"]}, "note": {"type": "string", "maxLength": 5}},
    "required": ["word"],
}
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PATCH = 'start: "+" line\nline: /[a-z]+/ "\\n"'
RAW = "<custom_tool_call>"
APPLY_PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
"""
VOCABULARY = END + 1 + len(THINK)
HIGH = Sampling(temperature=2, top_p=1, max_tokens=400)


def function(name, parameters):
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def custom(name, syntax, definition):
    return {"type": "custom", "custom": {"name": name, "format": {"grammar": {"syntax": syntax,
                                                                              "definition": definition}}}}  # fmt: skip


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


TOOLS = [
    function("count", COUNT),
    function("time", {}),
    custom("patch", "lark", PATCH),
    custom("hex", "regex", "[0-9a-f]{2}"),
]
ANY = ("count", "time", "patch", "hex")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def compiler(tokenizer):
    return Compiler(tokenizer)


@pytest.fixture
def admits(compiler, tokenizer):
    """Tell whether an answer may be written, and end there."""

    def admits(text, prompt="?", **constraint):
        prompt = tokenizer.encode(prompt, add_special_tokens=False)
        grammar = compiler.compile(prompt, Constraint(**constraint), TOOLS)
        return is_allowed(grammar.processor(), prompt, [*tokenizer.encode(text, add_special_tokens=False), END])

    return admits


def allowed(processor, tokens, size=VOCABULARY):
    logits = processor(mx.array(tokens), mx.zeros((1, size)))
    return {token for token, logit in enumerate(logits[0].tolist()) if logit == 0}


def is_allowed(processor, prompt, answer):
    tokens = list(prompt)
    for token in answer:
        if token not in allowed(processor, tokens):
            return False
        tokens.append(token)
    return True


# The answer's text


@pytest.mark.parametrize(
    "text", ['{"word": "yes"}', '{"word": "no", "note": "abcde"}', '{"word": "no", "note": "ü\\n"}']
)
def test_text_of_the_schema_is_allowed(admits, text):
    assert admits(text, schema=ANSWER)


@pytest.mark.parametrize(
    "text",
    ["", "Sure:", '{"word": "maybe"}', '{"word": "yes"', '{"word": "yes"} ', '{"word": "yes", "note": "abcdef"}',
     '{"word":"yes"}', '{"word": "yes", "more": 1}', '{"note": "a", "word": "yes"}'],
)  # fmt: skip
def test_other_text_is_not_allowed_nor_an_end_before_it_is_whole(admits, text):
    assert not admits(text, schema=ANSWER)


def test_an_object_may_be_any(admits):
    assert admits('{"a": [1, {"b": null}]}', schema={"type": "object"})
    assert not admits("[1]", schema={"type": "object"})


def test_an_object_is_closed_unless_it_says_otherwise_or_is_merged(admits):
    open_ = {**COUNT, "additionalProperties": True}
    merged = {"allOf": [COUNT, {"type": "object", "properties": {"m": {"type": "integer"}}, "required": ["m"]}]}

    assert not admits('{"n": 1, "m": 2}', schema=COUNT)
    assert admits('{"n": 1, "m": 2}', schema=open_)
    assert admits('{"n": 1, "m": 2}', schema=merged)
    assert admits('{"n": 1, "m": 2}', schema={**COUNT, "allOf": merged["allOf"][1:]})


def test_a_model_may_think_first(admits):
    assert admits('<think>{"hm"}</think>\n\n{"n": 1}', schema=COUNT)
    assert admits('{"n": 1}', schema=COUNT)
    assert not admits('<think>hm</think>so {"n": 1}', schema=COUNT)


def test_a_prompt_that_opened_the_reasoning_leaves_it_to_be_closed(admits):
    assert admits('hm</think>{"n": 1}', prompt="<s><think>\n", schema=COUNT)
    assert not admits('{"n": 1}', prompt="<s><think>\n", schema=COUNT)


# Calls


def test_a_required_call_is_a_call_and_no_text(admits):
    assert admits(call("count", n=1), may_call=ANY, must_call=True)
    assert admits(f"<think>hm</think>\n{call('time')}", may_call=ANY, must_call=True)
    assert admits(f"{call('count', n=1)}\n{call('time')}", may_call=ANY, must_call=True)
    assert not any(
        admits(text, may_call=ANY, must_call=True)
        for text in ("", "Hello", f"I look. {call('time')}", f"{call('time')} Done", call("count"), call("other"))
    )


def test_the_calls_are_those_that_may_be_made(admits):
    assert not admits(call("count", n=1), may_call=("time",), must_call=True)
    assert not admits(f"Well: {call('count', n=1)}", may_call=("time",))


def test_one_call_may_be_the_only_one(admits):
    twice = f"{call('time')}\n{call('time')}"

    assert admits(call("time"), may_call=ANY, must_call=True, only_one=True)
    assert not admits(twice, may_call=ANY, must_call=True, only_one=True)
    assert admits(f"So: {call('time')}", may_call=ANY, only_one=True)
    assert not admits(f"So: {twice}", may_call=ANY, only_one=True)
    assert not admits(f"{call('time')} So.", may_call=ANY, only_one=True)


def test_free_text_binds_from_the_marker_on(admits):
    for text in (
        "",
        "Hello <tool",
        f"Hi {call('count', n=1)} and {call('time')} bye",
        f"<think>a</think>{call('time')}",
    ):
        assert admits(text, may_call=ANY)
    for text in ("Hi <tool_call>", f"Hi {call('count')}", f"Hi {call('other')}"):
        assert not admits(text, may_call=ANY)


def test_a_format_and_tools_give_calls_or_that_format(admits):
    assert admits('{"n": 1}', schema=COUNT, may_call=ANY)
    assert admits(call("time"), schema=COUNT, may_call=ANY)
    assert not admits("Hello", schema=COUNT, may_call=ANY)
    assert not admits('{"n": 1}', schema=COUNT, may_call=ANY, must_call=True)


def test_a_free_form_tool_with_a_regular_expression_is_a_call_of_one_string(admits):
    assert admits(call("hex", input="0f"), may_call=ANY, must_call=True)
    assert not admits(call("hex", input="0fa"), may_call=ANY, must_call=True)


def test_a_free_form_tool_with_a_grammar_has_the_rest_of_the_answer(admits):
    for lead in ("", call("time"), f"{call('time')}\n"):
        assert admits(f"{lead}{RAW}patch\n+abc\n", may_call=ANY, must_call=True)
    for text in ("patch\n", "patch\n-abc\n", "patch\n+abc", "patch\n+abc\n!", "time\n{}"):
        assert not admits(RAW + text, may_call=ANY, must_call=True)
    assert not admits(call("patch", input="+abc\n"), may_call=ANY, must_call=True)


def test_a_patch_as_coding_agents_have_it_is_followed(compiler, tokenizer):
    tools = [custom("apply_patch", "lark", APPLY_PATCH)]
    grammar = compiler.compile([START], Constraint(may_call=("apply_patch",)), tools)
    good = '*** Begin Patch\n*** Update File: a/b.py\n@@ def f\n-    return 1\n+    return "2"\n*** End Patch\n'

    for patch, is_good in [(good, True), (good.replace("@@ def", "!! def"), False), (good.replace("End", "Ed"), False)]:
        answer = tokenizer.encode(f"Here. {RAW}apply_patch\n{patch}", add_special_tokens=False)
        assert is_allowed(grammar.processor(), [START], [*answer, END]) is is_good


def test_a_free_form_call_may_be_the_only_one_or_follow_text(admits):
    assert admits(f"{RAW}patch\n+a\n", may_call=("patch",), must_call=True, only_one=True)
    assert not admits(f"{call('time')}{RAW}patch\n+a\n", may_call=ANY, must_call=True, only_one=True)
    assert admits(f"Here. {RAW}patch\n+a\n", may_call=ANY)
    assert admits(f"Here. {RAW}patch\n+a\n", may_call=("patch",), only_one=True)
    assert not admits(f"Here. {RAW}patch\n-a\n", may_call=("patch",))


# Refusals


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strng"}, "Invalid type: strng"),
        ({"type": 12}, "type must be a string or array of strings"),
        ({"$ref": "#/$defs/none"}, "Pointer '/$defs/none' does not exist"),
        ({"type": "string", "pattern": "(?=a)"}, "look-around, including look-ahead and look-behind, is not supported"),
        ({"type": "string", "pattern": "(a"}, "unclosed group"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "Unsatisfiable schema"),
    ],
)
@pytest.mark.parametrize("is_lenient", [True, False])
def test_a_schema_that_cannot_be_held_to_is_refused_with_the_reason(compiler, schema, reason, is_lenient):
    nested = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    constraints = [
        (Constraint(schema=nested, is_lenient=is_lenient), [], None),
        (Constraint(may_call=("f",), lenient=frozenset(["f"] if is_lenient else [])), [function("f", nested)], "f"),
    ]

    for constraint, tools, at_fault in constraints:
        with pytest.raises(GrammarError) as caught:
            compiler.compile([START], constraint, tools)

        assert str(caught.value).startswith(reason)
        assert caught.value.tool == at_fault


def test_what_cannot_be_held_to_is_left_out_if_the_client_was_not_strict(compiler):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "null"}, "format": "zork"}}}

    compiler.compile([START], Constraint(schema=schema, is_lenient=True), None)
    with pytest.raises(GrammarError, match="Unimplemented keys"):
        compiler.compile([START], Constraint(schema=schema), None)


@pytest.mark.parametrize(
    ("syntax", "definition", "reason"),
    [
        ("lark", "start: word", 'at 1(8): unknown name: "word"'),
        ("lark", "begin: /a/", "no start rule found"),
        ("regex", "(a", "unclosed group"),
    ],
)
def test_a_grammar_that_cannot_be_followed_is_refused_with_the_reason(compiler, syntax, definition, reason):
    with pytest.raises(GrammarError) as caught:
        compiler.compile([START], Constraint(may_call=("f",)), [custom("f", syntax, definition)])

    assert (str(caught.value), caught.value.tool) == (reason, "f")


def test_the_arguments_of_a_tool_are_an_object(compiler):
    with pytest.raises(GrammarError, match="are an object") as caught:
        compiler.compile([START], Constraint(may_call=("f",)), [function("f", {"type": "string"})])

    assert caught.value.tool == "f"


def test_a_tokenizer_that_is_no_fast_one_is_refused():
    with pytest.raises(GrammarError, match="tokenizer of this model"):
        Compiler(SimpleNamespace(_tokenizer=object(), eos_token_ids={1}))


# The logits


def test_tokens_of_the_prompt_are_not_read_and_later_ones_once(compiler):
    grammar = compiler.compile([START], Constraint(schema=COUNT), None)
    answer = [ord_of(char) for char in '{"n": 1']

    for prompt in ([], [START], [START, 5, 6, 7]):  # none, the rest of a cached one, a whole one
        processor = grammar.processor()
        assert allowed(processor, prompt) == {ord_of("{"), VOCABULARY - 2}
        assert ord_of("}") in allowed(processor, [*prompt, *answer])


def test_each_decode_has_a_processor_of_its_own(compiler):
    grammar = compiler.compile([START], Constraint(schema=COUNT), None)
    one, other = grammar.processor(), grammar.processor()

    allowed(one, [START])
    allowed(one, [START, ord_of("{")])

    assert ord_of("{") in allowed(other, [START])
    assert ord_of("{") not in allowed(one, [START, ord_of("{"), ord_of('"')])


@pytest.mark.parametrize("size", [END + 1, VOCABULARY, VOCABULARY + 100])
def test_a_model_may_have_fewer_or_more_logits_than_the_tokenizer_has_tokens(compiler, size):
    processor = compiler.compile([START], Constraint(schema=COUNT), None).processor()

    assert all(token < VOCABULARY for token in allowed(processor, [START], size))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_the_logits_keep_their_type_and_what_is_allowed_its_value(compiler, dtype):
    processor = compiler.compile([START], Constraint(schema=COUNT), None).processor()
    logits = mx.arange(VOCABULARY).astype(dtype)[None]

    masked = processor(mx.array([START]), logits)

    assert (masked.dtype, masked.shape) == (dtype, logits.shape)
    assert masked[0, ord_of("{")].item() == logits[0, ord_of("{")].item()
    assert masked[0, ord_of("[")].item() == -float("inf")


def test_after_the_end_there_is_only_the_end(compiler):
    processor = compiler.compile([START], Constraint(schema=COUNT), None).processor()
    tokens = [START, *map(ord_of, '{"n": 1}')]
    allowed(processor, [START])

    assert allowed(processor, tokens) == {END}
    assert allowed(processor, [*tokens, END]) == {END}
    assert allowed(processor, [*tokens, END, END]) == {END}
    assert processor.failure is None


def test_a_grammar_that_breaks_off_ends_the_answer_and_says_so(compiler):
    processor = compiler.compile([START], Constraint(schema=COUNT), None).processor()
    allowed(processor, [START])

    assert allowed(processor, [START, ord_of("!")]) == {END}
    assert processor.failure


def ord_of(char):
    return make_tokenizer().encode(char, add_special_tokens=False)[0]


# Decodes


@pytest.fixture
async def engine(tmp_path):
    """Load a random model: left alone, it never writes anything sensible."""
    engine = MlxEngine(lambda: (Watched(), load_tokenizer(tmp_path, markers=())))
    await engine.load()
    yield engine
    await engine.close()


async def decoded(engine, constraint, tools=None, sampling=HIGH):
    prompt = await engine.tokenize([{"role": "user", "content": "Hi"}], tools)
    grammar = await engine.constrain(prompt, constraint, tools)
    return [piece async for piece in engine.decode(prompt, sampling, tools, grammar=grammar) if piece != Text("")]


async def test_whatever_a_model_likes_its_answer_is_of_the_schema(engine):
    for _ in range(10):
        *pieces, finish = await decoded(engine, Constraint(schema=ANSWER))
        answer = json.loads("".join(piece.text for piece in pieces))

        assert finish.reason == "stop"
        assert answer["word"] in {"yes", "no"}
        assert len(answer.get("note", "")) <= 5


async def test_whatever_a_model_likes_a_required_call_is_made(engine):
    tools = [function("count", {**COUNT, "properties": {"n": {"enum": [1, 2, 3]}}}), function("time", {})]
    constraint = Constraint(may_call=("count",), must_call=True, only_one=True)

    for _ in range(10):
        made, finish = await decoded(engine, constraint, tools)

        assert (made.name, json.loads(made.arguments)["n"] in {1, 2, 3}) == ("count", True)
        assert finish.reason == "stop"


async def test_a_required_call_that_the_limit_cuts_is_no_call(engine):
    constraint = Constraint(may_call=("count",), must_call=True)
    tools = [function("count", COUNT)]

    pieces = await decoded(engine, constraint, tools, Sampling(temperature=2, top_p=1, max_tokens=20))

    assert [(type(piece), piece.reason) for piece in pieces] == [(Finish, "length")]


async def test_a_free_form_call_comes_as_it_is(engine):
    text = '+"a\\\n</tool_call>'
    tools = [custom("patch", "lark", f"start: {json.dumps(text)}")]

    made, _ = await decoded(engine, Constraint(may_call=("patch",), must_call=True), tools)

    assert made == ToolCall(name="patch", arguments=json.dumps({"input": text}))


async def test_a_grammar_that_breaks_off_is_a_model_that_gave_up(engine):
    class Broken:
        def __init__(self, *_): ...

        failure = "too complex"

        def __call__(self, _, logits):
            return mx.where(mx.arange(logits.shape[-1]) == END, logits, -mx.inf)

    prompt = await engine.tokenize([{"role": "user", "content": "Hi"}])
    decoding = engine.decode(prompt, HIGH, grammar=SimpleNamespace(processor=Broken))

    assert [piece async for piece in decoding][-1].reason == "error"


async def test_a_schema_is_refused_without_a_decode(engine):
    with pytest.raises(GrammarError):
        await engine.constrain([START], Constraint(schema={"type": "strng"}))
