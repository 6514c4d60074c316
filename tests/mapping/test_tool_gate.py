"""The walk over a whole conversation: every call answered once, by the block that follows it, in order."""

import pytest

from handlers.mapping.to_messages import Message, to_items, to_messages
from handlers.mapping.tool_gate import find_gate_fault, to_canonical, to_outstanding


def turn(*call_ids):
    return [{"type": "function_call", "call_id": i, "name": "look", "arguments": "{}"} for i in call_ids]


def out(*call_ids):
    return [{"type": "function_call_output", "call_id": i, "output": i} for i in call_ids]


USER = {"role": "user", "content": "Hi"}


def walk(*items):
    return to_canonical(to_messages(to_items(list(items))))


@pytest.mark.parametrize("items", [[USER], [*turn("a"), *out("a"), USER], [USER, *turn("a", "b"), *out("a", "b")]])
def test_a_well_formed_conversation_is_unchanged(items):
    messages = to_messages(to_items(items))

    assert to_canonical(messages) == (messages, None)


def test_outputs_are_put_in_the_order_of_the_calls():
    ordered, fault = walk(*turn("a", "b", "c"), *out("c", "a", "b"), USER)

    assert fault is None
    assert [message.call_id for message in ordered[1:4]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("items", "index", "reason"),
    [
        ([*out("a")], 0, "the output of 'a' follows no call"),
        ([USER, *out("a")], 1, "the output of 'a' follows no call"),
        ([*turn("a"), *out("a"), USER, *out("a")], 3, "follows no call"),
        ([*turn(""), *out("")], 0, "a function call without a call_id"),
        ([*turn("a", "a"), *out("a")], 0, "the same call_id 'a'"),
        ([*turn("a"), *out("b")], 0, "'b' answers none of its calls"),
        ([*turn("a"), *out("a", "a")], 0, "'a' is answered twice"),
        ([*turn("a"), USER], 0, "the next message is a user turn"),
        ([USER, *turn("a")], 1, "no function_call_output: a"),
        ([*turn("a", "b", "c"), *out("b")], 0, "no function_call_output: a, c"),
    ],
)
def test_the_first_malformed_turn_is_named(items, index, reason):
    _, fault = walk(*items)

    assert fault is not None
    event, facts = fault
    assert (event, facts["index"]) == ("history_malformed", index)
    assert reason in facts["reason"]


def test_the_outstanding_calls_are_those_of_the_last_assistant_turn():
    history = to_messages(to_items([*turn("a"), *out("a"), USER, *turn("b", "c"), *out("c")]))

    assert to_outstanding(history) == ["b"]
    assert to_outstanding([Message("user", "Hi")]) == []


@pytest.mark.parametrize(
    ("items", "event", "call_id"),
    [
        (out("a", "a"), "output_duplicated", "a"),
        (out("x", "a", "a"), "output_unknown", "x"),
        (out("a", "a", "x"), "output_duplicated", "a"),
        (out("a", "x", "a"), "output_unknown", "x"),
        (out("x", "x"), "output_unknown", "x"),
        (out("b"), "outputs_missing", None),
        ([*out("a"), USER, *out("b")], "outputs_scattered", None),
        ([USER, *out("x")], "outputs_scattered", None),
        ([USER], "calls_unresolved", None),
    ],
)
def test_the_first_fault_of_the_outputs_is_named_in_the_order_they_were_sent(items, event, call_id):
    named, facts = find_gate_fault(["a", "b"], to_messages(to_items(items)))

    assert (named, facts.get("call_id")) == (event, call_id)


@pytest.mark.parametrize("items", [out("a", "b"), out("b", "a"), [*out("b", "a"), USER, USER]])
def test_all_the_outputs_in_any_order_may_lead_a_turn(items):
    assert find_gate_fault(["a", "b"], to_messages(to_items(items))) is None
