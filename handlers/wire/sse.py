"""Server-sent event frames: `event:` and `data:`, one write each, no ids (Open Responses, streaming)."""

import msgspec

from handlers.wire.events import Event

DONE = b"data: [DONE]\n\n"


def to_frame(event: Event, sequence_number: int) -> bytes:
    """Make the frame of one event; the number becomes the last key of its data."""
    data = msgspec.json.encode(event)
    name = event.__struct_config__.tag
    return b'event: %s\ndata: %s,"sequence_number":%d}\n\n' % (str(name).encode(), data[:-1], sequence_number)
