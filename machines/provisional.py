"""A row that is written before its terminal event: nobody reads it until that event has left.

If it never leaves, the row is deleted once nothing can write it any more, and it stays out of sight until then: its
client left, or was told that the response failed. How far the write itself is, is the write machine's business.
"""

from enum import Enum

from machines.table import States, Table


class State(States):
    """What becomes of a row."""

    PROVISIONAL = "out of sight"
    WITHDRAWN = "waiting for its write to end"
    DELETING = "being deleted"
    UNDELETED = "not deleted, to be tried again"
    DELETED = "deleted"
    KEPT = "kept"
    LEFT = "left behind"


FINAL = frozenset({State.DELETED, State.KEPT, State.LEFT})

# fmt: off
MOVES = [
    # event                  from                                                    to
    ["terminal_delivered",   State.PROVISIONAL,                                      State.KEPT],
    ["terminal_undelivered", State.PROVISIONAL,                                      State.WITHDRAWN],
    ["write_ended",          State.WITHDRAWN,                                        State.DELETING],
    ["row_deleted",          State.DELETING,                                         State.DELETED],
    ["delete_failed",        State.DELETING,                                         State.UNDELETED],
    ["delete_retried",       State.UNDELETED,                                        State.DELETING],
    ["crashed",              [State.WITHDRAWN, State.DELETING],                      State.UNDELETED],
    ["server_closed",        [State.WITHDRAWN, State.DELETING, State.UNDELETED],     State.LEFT],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    State.PROVISIONAL: {"on_exit": "wake"},
    **{state: {"on_enter": "forget"} for state in FINAL},
}
# fmt: on

PROVISIONAL = Table("provisional", State, State.PROVISIONAL, FINAL, MOVES, HOLDS, cancelled="server_closed")
MACHINE = PROVISIONAL.machine
