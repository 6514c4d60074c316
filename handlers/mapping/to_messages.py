"""From Responses items, of the request and of the chain before it, to the messages a chat template takes."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from handlers.mapping.compaction import to_summary
from handlers.mapping.to_struct import FieldError, join, shown, to_struct
from handlers.mapping.to_tools import to_flat
from handlers.wire.depth import TOO_DEEP, is_too_deep
from handlers.wire.items import InputCall, InputCallOutput, InputCustomCall, InputMessage, InputReasoning, Parts

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TEXT_FIELD = {
    "input_text": "text", "output_text": "text", "summary_text": "text", "reasoning_text": "text", "text": "text",
    "refusal": "refusal",
}  # fmt: skip
# coding agents send screenshots to whatever model they have; a note keeps their session alive
UNSEEN = {
    "input_image": "[An image was attached here, which this model cannot see.]",
    "input_file": "[A file was attached here, which this model cannot read.]",
    "input_audio": "[A sound was attached here, which this model cannot hear.]",
}
# what another server made opaque: to leave it out would answer another conversation
OPAQUE = {"compaction_summary"}


class Message(Struct):
    """One chat message; an assistant's reasoning, text and calls are one message."""

    role: str
    content: str = ""
    reasoning: str = ""
    calls: list[InputCall] = []
    call_id: str | None = None


class Fold(Struct):
    """A message in the making: its pieces are joined once, for a turn may have very many."""

    role: str
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[InputCall] = []
    call_id: str | None = None


def to_items(given: str | list[Any]) -> list[dict[str, Any]]:
    """Make a request's input a list of items; those without a type are messages. Raises FieldError."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [_to_item(item, join("input", index)) for index, item in enumerate(given)]


def to_messages(items: Iterable[dict[str, Any]], path: str = "input") -> list[Message]:
    """Fold items into messages: reasoning, message and calls of one assistant turn become one. Raises FieldError."""
    folds: list[Fold] = []
    for index, item in enumerate(items):
        FOLDS.get(item["type"], _fold_unknown)(folds, item, join(path, index))
    return [
        Message(fold.role, "".join(fold.content), "".join(fold.reasoning), fold.calls, fold.call_id) for fold in folds
    ]


def find_unseen(items: list[dict[str, Any]], path: str = "input") -> list[str]:
    """List the paths of the parts that a text model is only told of: images, files, sounds."""
    return [
        join(path, index, field, at)
        for index, item in enumerate(items)
        for field in ("content", "output")
        if isinstance(item.get(field), list)
        for at, part in enumerate(item[field])
        if isinstance(part, dict) and _is_unseen(part)
    ]


def to_chat(messages: list[Message], instructions: str | None) -> list[dict[str, Any]]:
    """Make the template's messages: one leading system message, then the conversation."""
    system = [instructions or "", *(message.content for message in messages if message.role == "system")]
    leading = "\n\n".join(text for text in system if text)
    turns = [_to_turn(message) for message in messages if message.role != "system"]
    return [{"role": "system", "content": leading}, *turns] if leading else turns


def _to_item(item: Any, path: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise FieldError(path, "an item must be a non-null object")
    kind = "message" if item.get("type") is None else item["type"]
    if not isinstance(kind, str):
        raise FieldError(join(path, "type"), "expected `str`")
    return {**item, "type": kind}


def _fold_message(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    given = to_struct(item, InputMessage, path)
    if given.role not in ROLES:
        raise FieldError(
            join(path, "role"), f"unsupported message role {shown(given.role)}; use one of {', '.join(ROLES)}"
        )
    text = _to_text(given.content, join(path, "content"))
    if given.role != "assistant":
        messages.append(Fold(ROLES[given.role], [text]))
        return
    turn = _turn(messages)
    if turn.calls:
        turn = Fold("assistant")
        messages.append(turn)
    turn.content.append(text)


def _fold_reasoning(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    given = to_struct(item, InputReasoning, path)
    field = "summary" if given.summary else "content"
    _turn(messages).reasoning.append(_to_text(getattr(given, field), join(path, field)))


def _fold_call(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    given = to_struct(item, InputCall, path)
    if is_too_deep(given.arguments.encode()):
        raise FieldError(join(path, "arguments"), TOO_DEEP)
    _turn(messages).calls.append(replace(given, name=to_flat(given.name, given.namespace)))


def _fold_custom_call(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    given = to_struct(item, InputCustomCall, path)
    arguments = json.encode({"input": given.input}).decode()
    _turn(messages).calls.append(InputCall(given.call_id, to_flat(given.name, given.namespace), arguments))


def _fold_compaction(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    messages.append(Fold("system", [to_summary(item, path)]))


def _fold_unknown(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    """Keep the words of an item we do not know, and leave out one that has none."""
    if item["type"] in OPAQUE:
        raise FieldError(join(path, "type"), f"items of type {shown(item['type'])} cannot be read by this server")
    if isinstance(item.get("content"), str | list):
        role = item.get("role")
        _fold_message(
            messages, {**item, "role": role if isinstance(role, str) and role in ROLES else "assistant"}, path
        )


def _fold_call_output(messages: list[Fold], item: dict[str, Any], path: str) -> None:
    given = to_struct(item, InputCallOutput, path)
    messages.append(Fold("tool", [_to_text(given.output, join(path, "output"))], call_id=given.call_id))


FOLDS: dict[str, Callable[[list[Fold], dict[str, Any], str], None]] = {
    "message": _fold_message,
    "reasoning": _fold_reasoning,
    "function_call": _fold_call,
    "function_call_output": _fold_call_output,
    "custom_tool_call": _fold_custom_call,
    "custom_tool_call_output": _fold_call_output,
    "compaction": _fold_compaction,
}


def _turn(messages: list[Fold]) -> Fold:
    if not messages or messages[-1].role != "assistant":
        messages.append(Fold("assistant"))
    return messages[-1]


def _to_text(content: str | Parts | None, path: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_to_part_text(part, join(path, index)) for index, part in enumerate(content))


def _to_part_text(part: dict[str, Any], path: str) -> str:
    kind = part.get("type")
    if _is_unseen(part):
        return UNSEEN[part["type"]]
    field = TEXT_FIELD.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise FieldError(join(path, "type"), f"content parts of type {shown(kind)} are not supported")
    return to_struct(part.get(field), str, join(path, field))


def _is_unseen(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in UNSEEN


def _to_turn(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
    if message.calls:
        turn["tool_calls"] = [_to_call(call) for call in message.calls]
    if message.call_id is not None:
        turn["tool_call_id"] = message.call_id
    return turn


def _to_call(call: InputCall) -> dict[str, Any]:
    try:
        arguments = json.decode(call.arguments)
    except DecodeError:
        arguments = call.arguments
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
