"""Server-sent event frames: `event:` and `data:`, one write each, no ids (Open Responses, streaming)."""

from typing import Any

import msgspec

from handlers.wire.events import Event
from storage.rows import EventRow

DONE = b"data: [DONE]\n\n"


def to_frame(event: Event | EventRow, sequence_number: int) -> bytes:
    """Make the frame of one event, or of a stored one, which has its number."""
    if isinstance(event, EventRow):
        return join_frame(event.name, event.data.encode())
    return join_frame(to_name(event), to_data(event, sequence_number))


def to_name(event: Event | EventRow) -> str:
    """Give the event's type."""
    if isinstance(event, EventRow):
        return event.name
    return str(event.__struct_config__.tag)


def to_data(event: Event, sequence_number: int) -> bytes:
    """Make what a frame carries; the number becomes its last key."""
    return b'%s,"sequence_number":%d}' % (msgspec.json.encode(event)[:-1], sequence_number)


def to_terminal_data(name: str, resource: dict[str, Any], number: int) -> bytes:
    """Make what the frame of a terminal event carries, of a resource that was stored."""
    return msgspec.json.encode({"type": name, "response": resource, "sequence_number": number})


def join_frame(name: str, data: bytes) -> bytes:
    """Make a frame of an event's type and data."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
