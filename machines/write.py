"""The write of one stored response.

Its id is reserved before the terminal event leaves, so whoever names it is told to wait, never that it is unknown. A
write is in flight until its store answers; the soft timeout only ends its exchange's patience, the hard timeout lets go
of the model and leaves a marker that a continuation renews, up to the row's own expiry. A write that failed keeps its
row in memory and is tried again. An exchange whose terminal never left gives its id back.
"""

from enum import Enum

from machines.table import States, Table


class State(States):
    """Where a row stands."""

    RESERVED = "reserved"
    IN_FLIGHT = "in flight"
    LATE = "in flight past the soft timeout"
    WEDGED = "in flight past the hard timeout"
    EXPIRED = "in flight and no longer vouched for"
    FAILED = "failed, to be tried again"
    LANDED = "landed"
    LOST = "lost"
    RELEASED = "released"


FINAL = frozenset({State.LANDED, State.LOST, State.RELEASED})

# fmt: off
MOVES = [
    # event                  from                                                           to
    ["write_started",        State.RESERVED,                                                State.IN_FLIGHT],
    ["terminal_undelivered", State.RESERVED,                                                State.RELEASED],
    ["soft_timeout_passed",  State.IN_FLIGHT,                                               State.LATE],
    ["hard_timeout_passed",  [State.IN_FLIGHT, State.LATE],                                 State.WEDGED],
    ["marker_renewed",       State.WEDGED,                                                  State.WEDGED],
    ["marker_expired",       State.WEDGED,                                                  State.EXPIRED],
    ["row_committed",        [State.IN_FLIGHT, State.LATE, State.WEDGED, State.EXPIRED],    State.LANDED],
    ["write_failed",         [State.IN_FLIGHT, State.LATE, State.WEDGED],                   State.FAILED],
    ["write_failed",         State.EXPIRED,                                                 State.LOST],
    ["write_retried",        State.FAILED,                                                  State.IN_FLIGHT],
    ["row_expired",          State.FAILED,                                                  State.LOST],
    ["row_given_up",         State.FAILED,                                                  State.LOST],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {
    State.IN_FLIGHT: {"on_enter": "arm_breaker"},
    State.LATE:      {"on_enter": "let_go_if_unguarded"},
    State.WEDGED:    {"on_enter": ["mark", "let_go"], "on_exit": "unmark"},
    State.EXPIRED:   {"on_enter": "forget"},
    State.FAILED:    {"on_enter": ["disarm_breaker", "keep", "wake", "let_go"], "on_exit": "unkeep"},
    State.LANDED:    {"on_enter": ["disarm_breaker", "forget", "wake", "let_go"]},
    State.LOST:      {"on_enter": ["forget", "let_go"]},
    State.RELEASED:  {"on_enter": ["forget", "wake"]},
}
# fmt: on

WRITE = Table("write", State, State.RESERVED, FINAL, MOVES, HOLDS)
MACHINE = WRITE.machine
