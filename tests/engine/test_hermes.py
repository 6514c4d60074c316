"""Conversations with tools, for templates that know none."""

from types import SimpleNamespace

from engine.hermes import FUNCTIONS, to_function, to_plain, to_template
from engine.markers import Markers
from engine.pieces import Text, ToolCall
from tests.engine.tiny import START, make_tokenizer

NATIVE = SimpleNamespace(has_tool_calling=True)
TIME = {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object"}}}
SAY = {"type": "custom", "custom": {"name": "say", "description": "Say it."}}
HEX = {"type": "custom", "custom": {"name": "hex", "format": {"grammar": {"syntax": "regex", "definition": "a|b"}}}}
LARK = {"grammar": {"syntax": "lark", "definition": "start: /a/"}}
PATCH = {"type": "custom", "custom": {"name": "patch", "description": "Patch.", "format": LARK}}
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": {"zone": "CET"}}}


def test_a_free_form_tool_is_a_function_of_one_string():
    function = to_function(SAY)["function"]

    assert (function["name"], function["description"]) == ("say", "Say it.")
    assert function["parameters"]["properties"] == {"input": {"type": "string"}}
    assert to_function(HEX)["function"]["parameters"]["properties"]["input"]["pattern"] == "^(?:a|b)$"
    assert to_function(TIME) is TIME


def test_a_template_that_knows_tools_renders_them_itself():
    messages, tools = to_template(NATIVE, [USER], [TIME, SAY])

    assert messages == [USER]
    assert tools == [TIME, to_function(SAY)]


def test_a_free_form_tool_with_a_grammar_is_told_of_whatever_the_template_knows():
    messages, tools = to_template(NATIVE, [{"role": "system", "content": "Be brief."}, USER], [TIME, PATCH])

    assert tools == [TIME]
    assert messages[0]["content"].startswith("Be brief.\n\n# Free-form tools")
    assert "## patch\nPatch.\nThe input follows this Lark grammar:\nstart: /a/" in messages[0]["content"]
    assert messages[1:] == [USER]


def test_without_tools_a_conversation_is_left_alone():
    assert to_template(make_tokenizer(), [USER], None) == ([USER], None)


def test_tools_lead_where_there_is_no_system_message():
    messages, tools = to_template(make_tokenizer(), [USER], [TIME])

    assert tools is None
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"].startswith(FUNCTIONS.partition("{tools}")[0])


def test_calls_and_their_outputs_are_text_and_the_outputs_of_a_turn_one_message():
    turn = {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]}
    outputs = [{"role": "tool", "content": text, "tool_call_id": "call_1"} for text in ("12:00", "13:00")]
    block = '<tool_call>\n{"name": "time", "arguments": {"zone": "CET"}}\n</tool_call>'

    assert to_plain([USER, turn, *outputs, USER]) == [
        USER,
        {"role": "assistant", "content": f"I look.\n{block}\n{block}"},
        {"role": "user", "content": "<tool_response>\n12:00\n</tool_response>\n"
                                    "<tool_response>\n13:00\n</tool_response>"},
        USER,
    ]  # fmt: skip


def pieces_of(text, tools):
    markers = Markers(make_tokenizer(), [START], tools)
    return [piece for character in text for piece in markers.read(character)] + markers.end("stop")


def test_a_free_form_call_has_the_rest_of_the_answer_as_its_input():
    *pieces, made = pieces_of("Here.<custom_tool_call>patch\n<tool_call>\n </tool_call>\n", [PATCH])

    assert made == ToolCall(name="patch", arguments='{"input": "<tool_call>\\n </tool_call>\\n"}')
    assert "".join(piece.text for piece in pieces) == "Here."


def test_without_such_a_tool_its_marker_is_text():
    text = "<custom_tool_call>patch\na"

    assert "".join(piece.text for piece in pieces_of(text, [TIME]) if isinstance(piece, Text)) == text


def test_a_marker_inside_a_string_of_a_call_is_text_of_the_string():
    text = '<tool_call>{"name": "time", "arguments": {"a": "\\"</tool_call>"}}</tool_call>ok'

    pieces = [piece for piece in pieces_of(text, [TIME]) if piece != Text("")]

    assert pieces[0] == ToolCall(name="time", arguments='{"a": "\\"</tool_call>"}')
    assert "".join(piece.text for piece in pieces[1:]) == "ok"


def test_a_call_that_never_leaves_its_string_is_text_after_all():
    text = 'See <tool_call>{"name</tool_call> there'

    assert "".join(piece.text for piece in pieces_of(text, [TIME])) == text
