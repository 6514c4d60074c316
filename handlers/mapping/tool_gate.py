"""Which tool outputs a turn may carry: those the stored chain waits for, all of them, once each, and first.

A fault is the name of the exchange's row and the facts of its sentence; None is none.
"""

from collections import Counter
from typing import Any

from handlers.mapping.to_messages import Message

Fault = tuple[str, dict[str, Any]]
CALLS = {"function_call", "custom_tool_call"}


def to_outstanding(history: list[Message]) -> list[str]:
    """List the calls of the stored chain's last assistant message that no later output answered, in their order."""
    last = max((index for index, message in enumerate(history) if message.role == "assistant"), default=None)
    if last is None:
        return []
    answered = {message.call_id for message in history[last + 1 :] if message.role == "tool"}
    return [call.call_id for call in history[last].calls if call.call_id not in answered]


def drop_echoes(items: list[dict[str, Any]], known: list[str]) -> tuple[list[dict[str, Any]], Fault | None]:
    """Drop the calls a client sends back on a continuation; what is stored is what counts."""
    kept, made = [], set(known)
    for item in items:
        call_id = item.get("call_id")
        if item["type"] not in CALLS:
            kept.append(item)
        elif not isinstance(call_id, str) or call_id not in made:
            return items, ("echo_unknown", {"call_id": call_id})
    return kept, None


def find_gate_fault(outstanding: list[str], messages: list[Message]) -> Fault | None:
    """Check the new messages of a continuation against the calls that wait for an output."""
    given = [message.call_id or "" for message in messages if message.role == "tool"]
    if not outstanding:
        return ("output_unexpected", {}) if given else None
    leading = next((index for index, message in enumerate(messages) if message.role != "tool"), len(messages))
    if leading < len(given):
        return "outputs_scattered", {}
    if not given:
        return "calls_unresolved", {"count": len(outstanding), "call_ids": ", ".join(outstanding)}
    return _find_id_fault(outstanding, given)


def _find_id_fault(outstanding: list[str], given: list[str]) -> Fault | None:
    seen: set[str] = set()
    expected = set(outstanding)
    for call_id in given:
        if call_id in seen:
            return "output_duplicated", {"call_id": call_id}
        if call_id not in expected:
            return "output_unknown", {"call_id": call_id, "call_ids": ", ".join(outstanding)}
        seen.add(call_id)
    missing = [call_id for call_id in outstanding if call_id not in seen]
    return ("outputs_missing", {"call_ids": ", ".join(missing)}) if missing else None


def to_canonical(messages: list[Message]) -> tuple[list[Message], Fault | None]:
    """Put the outputs of each assistant turn in the order of its calls, and find the first malformed turn."""
    ordered: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.role == "tool":
            return messages, _malformed(index - 1, f"the output of {message.call_id!r} follows no call")
        ordered.append(message)
        if not message.calls:
            continue
        block = _block(messages, index)
        if reason := _find_block_fault([call.call_id for call in message.calls], block, _role(messages, index)):
            return messages, _malformed(index - 1, reason)
        by_id = {output.call_id: output for output in block}
        ordered += [by_id[call.call_id] for call in message.calls]
        index += len(block)
    return ordered, None


def _role(messages: list[Message], index: int) -> str | None:
    return messages[index].role if index < len(messages) else None


def _block(messages: list[Message], start: int) -> list[Message]:
    end = next((at for at in range(start, len(messages)) if messages[at].role != "tool"), len(messages))
    return messages[start:end]


def _find_block_fault(calls: list[str], block: list[Message], following: str | None) -> str | None:
    given = [output.call_id or "" for output in block]
    declared, answered = set(calls), set(given)
    stray = next((call_id for call_id in given if call_id not in declared), None)
    missing = [call_id for call_id in calls if call_id not in answered]
    faults = [
        ("" in declared, "it has a function call without a call_id"),
        (_twice(calls), "two of its function calls have the same call_id {found!r}"),
        (stray, "the function_call_output {found!r} answers none of its calls"),
        (_twice(given), "the call {found!r} is answered twice"),
        (not block and following, "its function calls are unresolved and the next message is a {found} turn"),
        (", ".join(missing), "these calls have no function_call_output: {found}"),
    ]
    return next((reason.format(found=found) for found, reason in faults if found), None)


def _twice(ids: list[str]) -> str | None:
    return next((call_id for call_id, count in Counter(ids).items() if count > 1), None)


def _malformed(index: int, reason: str) -> Fault:
    return "history_malformed", {"index": index, "reason": reason}
