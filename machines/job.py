"""A background response: how far it is, whoever looks.

Readers come and go, and none of them moves it: only the exchange that makes the response does, or a client that cancels
it. Each of its ends is final and has a terminal event, so a reader of any job comes to an end. A job that was under way
when its server died is failed by the next start.
"""

from enum import Enum

from machines.table import States, Table


class State(States):
    """Where a job stands; the value is the response's status."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({State.COMPLETED, State.INCOMPLETE, State.FAILED, State.CANCELLED})
UNDER_WAY = [State.QUEUED, State.IN_PROGRESS]

# fmt: off
MOVES = [
    # event                 from                to
    ["model_taken",         State.QUEUED,       State.IN_PROGRESS],
    ["response_completed",  State.IN_PROGRESS,  State.COMPLETED],
    ["response_incomplete", State.IN_PROGRESS,  State.INCOMPLETE],
    ["response_failed",     UNDER_WAY,          State.FAILED],
    ["client_cancelled",    UNDER_WAY,          State.CANCELLED],
    ["server_restarted",    UNDER_WAY,          State.FAILED],
]

HOLDS: dict[Enum, dict[str, str | list[str]]] = {state: {"on_enter": "close_journal"} for state in FINAL}
# fmt: on

JOB = Table("job", State, State.QUEUED, FINAL, MOVES, HOLDS, crashed="response_failed")
MACHINE = JOB.machine
