"""How deep JSON text is nested: every decoder, encoder and template after us recurses."""

import re
from itertools import accumulate

DEEPEST = 100  # levels
TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"

STRING = re.compile(rb'"[^"]*"')
STEPS = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))  # as signed bytes, up and down
NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))


def is_too_deep(text: bytes) -> bool:
    """Tell whether JSON text is nested more than DEEPEST levels, before anything decodes it; it need not be valid."""
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(STEPS, NO_MARKS)
    # most strings hold no bracket, and are gone before the slow search
    steps = STRING.sub(b"", marks.replace(b'""', b"")).replace(b'"', b"")
    return max(accumulate(memoryview(steps).cast("b")), default=0) > DEEPEST
