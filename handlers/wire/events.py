"""The events of a streamed response. Each is numbered where its frame is made, so none carries its number itself."""

from collections.abc import Callable

from msgspec import Struct

from engine.pieces import ChosenToken
from handlers.wire.items import OutputItem, OutputText, SummaryText
from handlers.wire.response import Response


class Created(Struct, frozen=True, tag="response.created"):
    """The first event of every stream."""

    response: Response


class InProgress(Struct, frozen=True, tag="response.in_progress"):
    """The response is being made."""

    response: Response


class Queued(Struct, frozen=True, tag="response.queued"):
    """The response waits for the model."""

    response: Response


class ItemAdded(Struct, frozen=True, tag="response.output_item.added"):
    """An output item begins."""

    output_index: int
    item: OutputItem


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
    logprobs: list[ChosenToken] = []


class TextDone(Struct, frozen=True, tag="response.output_text.done"):
    """The text is whole: what its deltas join to."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[ChosenToken] = []


class PartDone(Struct, frozen=True, tag="response.content_part.done"):
    """A content part ends."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText


class ItemDone(Struct, frozen=True, tag="response.output_item.done"):
    """An output item ends, completed or incomplete."""

    output_index: int
    item: OutputItem


class SummaryPartAdded(Struct, frozen=True, tag="response.reasoning_summary_part.added"):
    """The summary part of a reasoning item begins."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class SummaryDelta(Struct, frozen=True, tag="response.reasoning_summary_text.delta"):
    """The summary grows by `delta`."""

    item_id: str
    output_index: int
    summary_index: int
    delta: str


class SummaryDone(Struct, frozen=True, tag="response.reasoning_summary_text.done"):
    """The summary is whole."""

    item_id: str
    output_index: int
    summary_index: int
    text: str


class SummaryPartDone(Struct, frozen=True, tag="response.reasoning_summary_part.done"):
    """The summary part ends."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class ArgumentsDelta(Struct, frozen=True, tag="response.function_call_arguments.delta"):
    """The arguments of a call grow by `delta`."""

    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Struct, frozen=True, tag="response.function_call_arguments.done"):
    """The arguments of a call are whole."""

    item_id: str
    output_index: int
    arguments: str


class InputDelta(Struct, frozen=True, tag="response.custom_tool_call_input.delta"):
    """The input of a free-form tool's call grows by `delta`."""

    item_id: str
    output_index: int
    delta: str


class InputDone(Struct, frozen=True, tag="response.custom_tool_call_input.done"):
    """The input of a free-form tool's call is whole."""

    item_id: str
    output_index: int
    input: str


class Completed(Struct, frozen=True, tag="response.completed"):
    """The terminal event of a response that ended by itself."""

    response: Response


class Incomplete(Struct, frozen=True, tag="response.incomplete"):
    """The terminal event of a response that met its token limit."""

    response: Response


class Failed(Struct, frozen=True, tag="response.failed"):
    """The terminal event of a response that broke."""

    response: Response


Terminal = Completed | Incomplete | Failed
Event = (
    Created | InProgress | Queued | ItemAdded | ItemDone | PartAdded | TextDelta | TextDone | PartDone
    | SummaryPartAdded | SummaryDelta | SummaryDone | SummaryPartDone | ArgumentsDelta | ArgumentsDone
    | InputDelta | InputDone | Terminal
)  # fmt: skip
TERMINAL: dict[str, Callable[[Response], Terminal]] = {
    "response.completed": Completed,
    "response.incomplete": Incomplete,
    "response.failed": Failed,
}
