"""Items become messages, whoever sent them and however sloppily."""

import pytest

from handlers.mapping.to_messages import Message, to_chat, to_items, to_messages
from handlers.mapping.to_struct import FieldError


def messages(*items) -> list[Message]:
    return to_messages(to_items(list(items)))


def test_a_string_is_one_user_message():
    assert to_messages(to_items("Hello")) == [Message("user", "Hello")]


def test_an_item_without_a_type_is_a_message():
    assert messages({"role": "user", "content": "Hello"}) == [Message("user", "Hello")]


def test_ids_status_phase_and_nulls_are_ignored():
    item = {"type": None, "id": "msg_1", "status": "completed", "phase": "commentary", "role": "user", "content": None}

    assert messages(item) == [Message("user", "")]


def test_parts_are_joined_without_a_separator():
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b", "annotations": []},
             {"type": "refusal", "refusal": "c"}, {"type": "summary_text", "text": "d"}]  # fmt: skip

    assert messages({"role": "user", "content": parts}) == [Message("user", "abcd")]


def test_developer_is_system():
    assert messages({"role": "developer", "content": "Be brief."}) == [Message("system", "Be brief.")]


def test_reasoning_text_and_calls_of_one_turn_are_one_message():
    turn = messages(
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "content": None},
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": 1}'},
        {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "not json"},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "A heron."}]},
    )

    assert [message.role for message in turn] == ["assistant", "tool"]
    assert (turn[0].reasoning, turn[0].content) == ("Hm.", "Let me look.")
    assert [call.call_id for call in turn[0].calls] == ["call_1", "call_2"]
    assert (turn[1].content, turn[1].call_id) == ("A heron.", "call_1")


def test_a_message_after_a_call_is_a_new_turn_but_reasoning_is_not():
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}

    assert len(messages(call, {"role": "assistant", "content": "Done."})) == 2
    assert len(messages(call, {"type": "reasoning", "summary": []})) == 1


def test_what_an_assistant_did_is_never_folded_into_a_users_message():
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}

    folded = messages({"role": "user", "content": "Hi"}, call, {"role": "user", "content": "Hi"})

    assert [(message.role, len(message.calls)) for message in folded] == [("user", 0), ("assistant", 1), ("user", 0)]


def test_all_system_messages_lead_as_one():
    conversation = messages(
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": "Be clear."},
        {"role": "user", "content": "Hello"},
        {"role": "developer", "content": "Be quick."},
    )

    assert to_chat(conversation, "Be kind.") == [
        {"role": "system", "content": "Be kind.\n\nBe brief.\n\nBe clear.\n\nBe quick."},
        {"role": "user", "content": "Hello"},
    ]


def test_without_instructions_there_is_no_system_message():
    assert to_chat(messages({"role": "user", "content": "Hello"}), "") == [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "words",
    [
        {"summary": [], "content": None, "encrypted_content": None},
        {"summary": None, "content": None},
        {},
        {"summary": [], "content": [], "encrypted_content": "gAAAA", "status": None},
    ],
)
def test_reasoning_without_words_says_nothing_and_harms_nothing(words):
    turn = messages({"type": "reasoning", "id": "rs_1", **words}, {"role": "assistant", "content": "Hi"})

    assert to_chat(turn, None) == [{"role": "assistant", "content": "Hi"}]


def test_a_template_is_given_calls_with_decoded_arguments():
    turn = messages(
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": 1}'},
        {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "at"},
        {"type": "function_call_output", "call_id": "call_1", "output": "A heron."},
    )

    assert to_chat(turn, None) == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}},
                {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "at"}},
            ],
        },
        {"role": "tool", "content": "A heron.", "tool_call_id": "call_1"},
    ]


@pytest.mark.parametrize("role", [[], {}, None, "narrator"])
def test_the_words_of_an_unknown_item_are_the_assistants_whatever_its_role(role):
    item = {"type": "agent_message", "role": role, "content": "Noted."}

    assert to_chat(messages(item), None) == [{"role": "assistant", "content": "Noted."}]


@pytest.mark.parametrize(
    ("item", "param", "reason"),
    [
        (None, "input[0]", "non-null object"),
        ("Hello", "input[0]", "non-null object"),
        ({"type": 5}, "input[0].type", "expected `str`"),
        ({"type": "compaction"}, "input[0].encrypted_content", "only what this server"),
        ({"type": "compaction", "encrypted_content": "gAAAA"}, "input[0].encrypted_content", "only what this server"),
        ({"type": "compaction", "encrypted_content": "interlock-1.?"}, "input[0].encrypted_content", "it is damaged"),
        ({"type": "compaction_summary"}, "input[0].type", "cannot be read"),
        ({"content": "Hello"}, "input[0].role", "it is required"),
        ({"role": "narrator", "content": "Once"}, "input[0].role", "unsupported message role 'narrator'"),
        ({"role": "user", "content": 5}, "input[0].content", "got `int`"),
        ({"role": "user", "content": ["Hello"]}, "input[0].content[0]", "expected `object`, got `str`"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text", "got `null`"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "input[0].content[0].type", "'hologram'"),
        ({"role": "user", "content": [{"type": "x" * 999}]}, "input[0].content[0].type", "x..."),
        ({"type": "function_call", "name": "look"}, "input[0].call_id", "it is required"),
        ({"type": "custom_tool_call", "name": "patch"}, "input[0].call_id", "it is required"),
        ({"type": "function_call_output", "output": "x", "call_id": 5}, "input[0].call_id", "got `int`"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output", "it is required"),
        ({"type": "function_call_output", "call_id": "c", "output": 1}, "input[0].output", "got `int`"),
    ],
)
def test_what_cannot_be_mapped_is_named_by_path(item, param, reason):
    with pytest.raises(FieldError) as fault:
        messages(item)

    assert fault.value.param == param
    assert reason in fault.value.reason
