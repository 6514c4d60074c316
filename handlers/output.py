"""The output items of one response, and what each change of them says to the client."""

from collections.abc import Callable
from typing import Any

from transitions import EventData

from handlers.wire import events
from handlers.wire.events import Event
from handlers.wire.items import ItemStatus, OutputMessage, OutputText
from machines.driver import Driven, fire
from machines.output import MACHINE, OUTPUT, SAYS, Item


class Output(Driven):
    """Follows the output machine; `items` is what the response resource lists."""

    state: Item

    def __init__(self, new_id: Callable[[str], str]) -> None:
        super().__init__(OUTPUT)
        self.items: list[OutputMessage] = []
        self._new_id = new_id
        self._said: list[Event] = []
        self._open = OutputMessage("", "in_progress", [])
        self._text: list[str] = []

    def grow(self, text: str) -> list[Event]:
        """Take decoded text; the first of it opens a message. Empty text says nothing."""
        if not text:
            return []
        if self.state is Item.NONE:
            fire(MACHINE, self, "message_started")
        self._text.append(text)
        self._said.append(SAY[SAYS[Item.MESSAGE].growing](self, text))
        return self._take()

    def end(self, event: str) -> list[Event]:
        """Close what is open: `output_ended` as completed, `output_cut` as incomplete. Does nothing a second time."""
        if self.state is not Item.CLOSED:
            fire(MACHINE, self, event)
        return self._take()

    def open_item(self, _: EventData) -> None:
        self._open = OutputMessage(self._new_id("msg"), "in_progress", [])
        self._text = []
        self._said += [SAY[name](self, "") for name in SAYS[self.state].opening]

    def close_item(self, happened: EventData) -> None:
        status: ItemStatus = "incomplete" if happened.event.name == "output_cut" else "completed"
        self._open = OutputMessage(self._open.id, status, [OutputText("".join(self._text))])
        self._said += [SAY[name](self, "") for name in SAYS[self.state].closing]
        self.items.append(self._open)

    def _take(self) -> list[Event]:
        said, self._said = self._said, []
        return said

    @property
    def at(self) -> dict[str, Any]:
        """Where the open content part stands."""
        return {"item_id": self._open.id, "output_index": len(self.items), "content_index": 0}

    @property
    def item(self) -> OutputMessage:
        """The open item."""
        return self._open

    @property
    def part(self) -> OutputText:
        """The open content part."""
        return self._open.content[0]


SAY: dict[str, Callable[[Output, str], Event]] = {
    "response.output_item.added": lambda o, _: events.ItemAdded(len(o.items), o.item),
    "response.content_part.added": lambda o, _: events.PartAdded(**o.at, part=OutputText("")),
    "response.output_text.delta": lambda o, text: events.TextDelta(**o.at, delta=text),
    "response.output_text.done": lambda o, _: events.TextDone(**o.at, text=o.part.text),
    "response.content_part.done": lambda o, _: events.PartDone(**o.at, part=o.part),
    "response.output_item.done": lambda o, _: events.ItemDone(len(o.items), o.item),
}
