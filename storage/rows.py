"""The rows of the tables, and what reading a chain of them can come to."""

from msgspec import Struct


class ResponseRow(Struct, frozen=True, kw_only=True):
    """A stored response. Times are Unix seconds; the `_json` fields are JSON text the store never reads."""

    id: str
    previous_response_id: str | None
    ancestors: tuple[str, ...]  # ids of the whole chain before this row, oldest first
    created_at: int
    expires_at: int | None
    model: str
    status: str
    instructions: str | None
    input_json: str
    output_json: str
    usage_json: str
    config_json: str


class ExchangeRow(Struct, frozen=True, kw_only=True, gc=False):
    """How one exchange went, without a word of its content.

    `ended_at` is in Unix seconds; `machine` names the table that it followed, and `event` is the last of its moves.
    `moves` is JSON, a list of event, from and to, and `ms` tells of each how many milliseconds the state that was left
    had lasted, kept to a microsecond; `facts` is JSON, an object of numbers.
    """

    id: str
    ended_at: float
    machine: str
    method: str
    path: str
    state: str
    event: str
    status: int | None
    model: str | None
    response_id: str | None
    moves: str
    ms: tuple[float, ...]
    facts: str


class TraceQuery(Struct, frozen=True, kw_only=True):
    """Which traces are asked for, the newest first: up to `limit` that ended before the exchange `after` did.

    `event` is any of a trace's moves; `since` and `until` are in Unix seconds and bound when it ended.
    """

    event: str | None = None
    state: str | None = None
    status: int | None = None
    model: str | None = None
    response_id: str | None = None
    since: float | None = None
    until: float | None = None
    after: str | None = None
    limit: int = 20


class JobRow(Struct, frozen=True, kw_only=True):
    """A background response as it stands; `response_json` is the resource, and `items_json` the input it answers."""

    id: str
    created_at: int
    expires_at: int
    status: str
    response_json: str
    items_json: str


class EventRow(Struct, frozen=True, kw_only=True):
    """One event of a background response; `data` is what its frame carries."""

    response_id: str
    number: int
    name: str
    data: str


class Chain(Struct, frozen=True):
    """A row and its ancestors, oldest first, all there and alive."""

    rows: list[ResponseRow]


class Missing(Struct, frozen=True):
    """The row, or one of the ancestors that were asked for, is unknown or has expired."""


class TooDeep(Struct, frozen=True):
    """The chain has `depth` rows, more than were asked for; its ancestors were not read."""

    depth: int


class Cyclic(Struct, frozen=True):
    """The row names an ancestor twice, or itself; no server writes such a row."""


Lookup = Chain | Missing | TooDeep | Cyclic
