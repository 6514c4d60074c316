"""Server-sent event frames: `event:` and `data:`, one write each, no ids (Open Responses, streaming)."""

import msgspec

from handlers.wire.events import Event

DONE = b"data: [DONE]\n\n"


def to_frame(event: Event, sequence_number: int) -> bytes:
    """Make the frame of one event."""
    return join_frame(to_name(event), to_data(event, sequence_number))


def to_name(event: Event) -> str:
    """Give the event's type."""
    return str(event.__struct_config__.tag)


def to_data(event: Event, sequence_number: int) -> bytes:
    """Make what a frame carries; the number becomes its last key."""
    return b'%s,"sequence_number":%d}' % (msgspec.json.encode(event)[:-1], sequence_number)


def join_frame(name: str, data: bytes) -> bytes:
    """Make a frame of an event's type and data."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
