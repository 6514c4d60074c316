"""The events of a streamed response. Each is numbered where its frame is made, so none carries its number itself."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from handlers.wire.items import OutputMessage, OutputText
from handlers.wire.response import Response


class Created(Struct, frozen=True, tag="response.created"):
    """The first event of every stream."""

    response: Response


class InProgress(Struct, frozen=True, tag="response.in_progress"):
    """The response is being made."""

    response: Response


class ItemAdded(Struct, frozen=True, tag="response.output_item.added"):
    """An output item begins."""

    output_index: int
    item: OutputMessage


class PartAdded(Struct, frozen=True, tag="response.content_part.added"):
    """A content part of an item begins."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText


class TextDelta(Struct, frozen=True, tag="response.output_text.delta"):
    """The text grows by `delta`."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Any] = []


class TextDone(Struct, frozen=True, tag="response.output_text.done"):
    """The text is whole: what its deltas join to."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Any] = []


class PartDone(Struct, frozen=True, tag="response.content_part.done"):
    """A content part ends."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText


class ItemDone(Struct, frozen=True, tag="response.output_item.done"):
    """An output item ends, completed or incomplete."""

    output_index: int
    item: OutputMessage


class Completed(Struct, frozen=True, tag="response.completed"):
    """The terminal event of a response that ended by itself."""

    response: Response


class Incomplete(Struct, frozen=True, tag="response.incomplete"):
    """The terminal event of a response that met its token limit."""

    response: Response


class Failed(Struct, frozen=True, tag="response.failed"):
    """The terminal event of a response that broke."""

    response: Response


Event = (
    Created | InProgress | ItemAdded | PartAdded | TextDelta | TextDone | PartDone | ItemDone
    | Completed | Incomplete | Failed
)  # fmt: skip
Terminal = Completed | Incomplete | Failed
TERMINAL: dict[str, Callable[[Response], Terminal]] = {
    "response.completed": Completed,
    "response.incomplete": Incomplete,
    "response.failed": Failed,
}
