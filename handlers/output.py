"""The output items of one response, and what each change of them says to the client."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from transitions import EventData

from engine.pieces import ChosenToken, Text
from handlers.mapping.to_tools import ToolName
from handlers.measured import Measured
from handlers.wire import events
from handlers.wire.events import Event
from handlers.wire.items import (
    ItemStatus,
    OutputCall,
    OutputCustomCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    SummaryText,
)
from machines.driver import Driven, Move, fire
from machines.output import MACHINE, OUTPUT, SAYS, Item

NewId = Callable[[str], str]
NOTHING = Text("")
BEGUN = frozenset({"reasoning_started", "message_started"})
Call = tuple[str, ToolName]


class Output(Driven):
    """Follows the output machine. `items` is what the resource lists, `said` what the client is still to hear."""

    state: Item

    def __init__(self, new_id: NewId, measured: Measured) -> None:
        super().__init__(OUTPUT)
        self._began: float | None = None  # by the monotonic clock
        self._measured = measured
        self.items: list[OutputItem] = []
        self.text = ""
        self._new_id = new_id
        self.said: deque[Event] = deque()
        self._grown: list[str] = []
        self.logprobs: list[ChosenToken] = []
        self._call: Call = ("", ToolName("", None))
        self.open: OutputItem = OutputMessage("", "in_progress", [])

    def think(self, text: str) -> None:
        """Take decoded reasoning; the first of it opens a reasoning item."""
        self._grow(Item.REASONING, "reasoning_started", Text(text))

    def write(self, text: Text) -> None:
        """Take decoded text; the first of it opens a message. Empty text says nothing."""
        self._grow(Item.MESSAGE, "message_started", text)

    def call(self, call_id: str | None, tool: ToolName, given: str) -> None:
        """Show a whole call, once the turn is committed; the next one or the end closes it."""
        self._call = (call_id or self._new_id("call"), tool)
        fire(MACHINE, self, "custom_committed" if tool.is_custom else "call_committed")
        if given:
            self._add(Text(given))

    def end(self, event: str) -> None:
        """Close what is open: `output_ended` as completed, `output_cut` as incomplete. Does nothing a second time."""
        if self.state is not Item.CLOSED:
            fire(MACHINE, self, event)

    def moved(self, move: Move) -> None:
        # a call is shown whole, and tells nothing of when the first of it was decoded
        if len(self.trace) == 1 and move.event in BEGUN:
            self._began = self.entered
            self._measured.first_token_ms = move.ms

    def measure(self, tokens: int) -> None:
        """Note how many tokens were decoded, up to now, and how fast since the first was there."""
        self._measured.output_tokens = tokens
        if self._began is not None and tokens > 1 and (seconds := time.monotonic() - self._began) > 0:
            self._measured.tokens_per_second = (tokens - 1) / seconds

    def open_item(self, _: EventData) -> None:
        self._grown, self.text, self.logprobs = [], "", []
        self.open = OPEN[self.state](self._new_id, self._call)
        self.said += [SAY[name](self, NOTHING) for name in SAYS[self.state].opening]

    def close_item(self, happened: EventData) -> None:
        status: ItemStatus = "incomplete" if happened.event.name == "output_cut" else "completed"
        self.text = "".join(self._grown)
        self.open = CLOSE[self.state](self, status)
        self.said += [SAY[name](self, NOTHING) for name in SAYS[self.state].closing]
        self.items.append(self.open)

    def _grow(self, kind: Item, event: str, text: Text) -> None:
        if text.text:
            if self.state is not kind:
                fire(MACHINE, self, event)
            self._add(text)

    def _add(self, text: Text) -> None:
        self._grown.append(text.text)
        self.logprobs += text.logprobs
        self.said.append(SAY[SAYS[self.state].growing](self, text))

    @property
    def part(self) -> OutputText:
        """The text part of the message that is open, as far as it has grown."""
        return OutputText(self.text, logprobs=self.logprobs)

    @property
    def at(self) -> dict[str, Any]:
        """Where the open item stands."""
        return {"item_id": self.open.id, "output_index": len(self.items)}


OPEN: dict[Item, Callable[[NewId, Call], OutputItem]] = {
    Item.REASONING: lambda new_id, _: OutputReasoning(new_id("rs"), "in_progress", []),
    Item.MESSAGE: lambda new_id, _: OutputMessage(new_id("msg"), "in_progress", []),
    Item.CALL: lambda new_id, call: OutputCall(
        new_id("fc"), "in_progress", call[0], call[1].name, "", call[1].namespace
    ),
    Item.CUSTOM_CALL: lambda new_id, call: OutputCustomCall(
        new_id("ctc"), "in_progress", call[0], call[1].name, "", call[1].namespace
    ),
}

CLOSE: dict[Item, Callable[[Output, ItemStatus], OutputItem]] = {
    Item.REASONING: lambda o, status: replace(o.open, status=status, summary=[SummaryText(o.text)]),
    Item.MESSAGE: lambda o, status: replace(o.open, status=status, content=[o.part]),
    Item.CALL: lambda o, status: replace(o.open, status=status, arguments=o.text),
    Item.CUSTOM_CALL: lambda o, status: replace(o.open, status=status, input=o.text),
}

# fmt: off
SAY: dict[str, Callable[[Output, Text], Event]] = {
    "response.output_item.added": lambda o, _: events.ItemAdded(len(o.items), o.open),
    "response.output_item.done": lambda o, _: events.ItemDone(len(o.items), o.open),
    "response.content_part.added": lambda o, _: events.PartAdded(**o.at, content_index=0, part=OutputText("")),
    "response.output_text.delta": lambda o, text:
        events.TextDelta(o.open.id, len(o.items), content_index=0, delta=text.text, logprobs=text.logprobs),
    "response.output_text.done": lambda o, _:
        events.TextDone(**o.at, content_index=0, text=o.text, logprobs=o.logprobs),
    "response.content_part.done": lambda o, _: events.PartDone(**o.at, content_index=0, part=o.part),
    "response.reasoning_summary_part.added":
        lambda o, _: events.SummaryPartAdded(**o.at, summary_index=0, part=SummaryText("")),
    "response.reasoning_summary_text.delta":
        lambda o, text: events.SummaryDelta(**o.at, summary_index=0, delta=text.text),
    "response.reasoning_summary_text.done": lambda o, _: events.SummaryDone(**o.at, summary_index=0, text=o.text),
    "response.reasoning_summary_part.done":
        lambda o, _: events.SummaryPartDone(**o.at, summary_index=0, part=SummaryText(o.text)),
    "response.function_call_arguments.delta": lambda o, text: events.ArgumentsDelta(**o.at, delta=text.text),
    "response.function_call_arguments.done": lambda o, _: events.ArgumentsDone(**o.at, arguments=o.text),
    "response.custom_tool_call_input.delta": lambda o, text: events.InputDelta(**o.at, delta=text.text),
    "response.custom_tool_call_input.done": lambda o, _: events.InputDone(**o.at, input=o.text),
}
# fmt: on
