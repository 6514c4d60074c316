"""The output items of one response while the model decodes.

An item is opened when its first text arrives and closed when it is left, by whatever event: `SAYS` names what the
client is told each time. An item that is cut (length limit, failure) closes as incomplete and is the last one.
"""

from enum import Enum
from typing import NamedTuple

from machines.table import Table, to_machine


class Item(Enum):
    """The item that is open."""

    NONE = "no item"
    MESSAGE = "message"
    CLOSED = "closed"


class Says(NamedTuple):
    """The wire events of one kind of item: when it opens, when it grows, when it closes."""

    opening: tuple[str, ...]
    growing: str
    closing: tuple[str, ...]


# fmt: off
SAYS = {
    Item.MESSAGE: Says(("response.output_item.added", "response.content_part.added"), "response.output_text.delta",
                       ("response.output_text.done", "response.content_part.done", "response.output_item.done")),
}

MOVES = [
    # event             from                        to
    ["message_started", Item.NONE,                  Item.MESSAGE],
    ["output_ended",    [Item.NONE, Item.MESSAGE],  Item.CLOSED],
    ["output_cut",      [Item.NONE, Item.MESSAGE],  Item.CLOSED],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    item: {"on_enter": "open_item", "on_exit": "close_item"} for item in SAYS
}
# fmt: on

OUTPUT = Table("output", Item, Item.NONE, frozenset({Item.CLOSED}), MOVES, HOLDS)
MACHINE = to_machine(OUTPUT)
