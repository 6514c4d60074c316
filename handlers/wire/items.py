"""Input items, as clients send them and as the store keeps them, and output items, as we send them."""

from typing import Any, Literal

from msgspec import Struct

from engine.pieces import ChosenToken

Parts = list[dict[str, Any]]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class InputMessage(Struct, frozen=True):
    """A message of any role. `id`, `status` and `phase` are accepted and ignored."""

    role: str
    content: str | Parts | None = None


class InputReasoning(Struct, frozen=True):
    """A reasoning item sent back; its nulls are as good as absent."""

    summary: Parts | None = None
    content: Parts | None = None


class InputCall(Struct, frozen=True):
    """A function call sent back; `namespace` is that of tools which came in one."""

    call_id: str
    name: str
    arguments: str = "{}"
    namespace: str | None = None


class InputCustomCall(Struct, frozen=True):
    """A call of a free-form tool sent back."""

    call_id: str
    name: str
    input: str = ""
    namespace: str | None = None


class InputCallOutput(Struct, frozen=True):
    """What a called function answered. One without a `call_id` is refused by a row of its own."""

    output: str | Parts
    call_id: str | None = None


class OutputText(Struct, frozen=True, tag="output_text"):
    """The text part of an output message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[ChosenToken] = []


class SummaryText(Struct, frozen=True, tag="summary_text"):
    """The one summary part of a reasoning item."""

    text: str


class OutputReasoning(Struct, frozen=True, tag="reasoning"):
    """What the model thought, in summary form."""

    id: str
    status: ItemStatus
    summary: list[SummaryText]


class OutputCall(Struct, frozen=True, tag="function_call", omit_defaults=True):
    """A call the model made; `namespace` is there for tools that came in one."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class OutputCustomCall(Struct, frozen=True, tag="custom_tool_call", omit_defaults=True):
    """A call of a free-form tool."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class OutputMessage(Struct, frozen=True, tag="message"):
    """A message the model wrote."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall
