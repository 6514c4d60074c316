"""The one row a stored response is."""

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
