"""The output items of one response while the model decodes.

An item is opened when its first piece arrives and closed when it is left, by whatever event: `SAYS` names what the
client is told each time. One item is open at a time. Calls come last, once the turn is committed. An item that is cut
(length limit, failure) closes as incomplete and is the last one.
"""

from enum import Enum
from typing import NamedTuple

from machines.table import States, Table


class Item(States):
    """The item that is open."""

    NONE = "no item"
    REASONING = "reasoning"
    MESSAGE = "message"
    CALL = "function call"
    CUSTOM_CALL = "custom tool call"
    CLOSED = "closed"


class Says(NamedTuple):
    """The wire events of one kind of item: when it opens, when it grows, when it closes."""

    opening: tuple[str, ...]
    growing: str
    closing: tuple[str, ...]


# fmt: off
SAYS = {
    Item.REASONING: Says(("response.output_item.added", "response.reasoning_summary_part.added"),
                         "response.reasoning_summary_text.delta",
                         ("response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
                          "response.output_item.done")),
    Item.MESSAGE:   Says(("response.output_item.added", "response.content_part.added"),
                         "response.output_text.delta",
                         ("response.output_text.done", "response.content_part.done", "response.output_item.done")),
    Item.CALL:      Says(("response.output_item.added",),
                         "response.function_call_arguments.delta",
                         ("response.function_call_arguments.done", "response.output_item.done")),
    Item.CUSTOM_CALL: Says(("response.output_item.added",),
                         "response.custom_tool_call_input.delta",
                         ("response.custom_tool_call_input.done", "response.output_item.done")),
}

OPEN = [Item.REASONING, Item.MESSAGE, Item.CALL, Item.CUSTOM_CALL]

MOVES = [
    # event                 from                                    to
    ["reasoning_started",   [Item.NONE, Item.MESSAGE],              Item.REASONING],
    ["message_started",     [Item.NONE, Item.REASONING],            Item.MESSAGE],
    ["call_committed",      [Item.NONE, *OPEN],                     Item.CALL],
    ["custom_committed",    [Item.NONE, *OPEN],                     Item.CUSTOM_CALL],
    ["output_ended",        [Item.NONE, *OPEN],                     Item.CLOSED],
    ["output_cut",          [Item.NONE, *OPEN],                     Item.CLOSED],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    item: {"on_enter": "open_item", "on_exit": "close_item"} for item in SAYS
}
# fmt: on

OUTPUT = Table("output", Item, Item.NONE, frozenset({Item.CLOSED}), MOVES, HOLDS)
MACHINE = OUTPUT.machine
