"""How deep JSON text is, seen without decoding it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.wire.depth import DEEPEST, is_too_deep

MARKS = st.text(alphabet='[]{}"\\a', max_size=6)
VALUES = st.recursive(
    MARKS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MARKS, inner, max_size=3), max_leaves=8
)


def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


@given(value=VALUES)
def test_text_is_as_deep_as_what_it_decodes_to_whatever_its_strings_hold(value):
    text = json.dumps([value, value]).encode()
    above = DEEPEST - depth([value])

    assert not is_too_deep(b"[" * above + text + b"]" * above)
    assert is_too_deep(b"[" * (above + 1) + text + b"]" * (above + 1))


@pytest.mark.parametrize(
    "text", [b'"' + b"[" * 200 + b'"', b"[" + b"[]," * 200 + b"[]]", b'["\\\\\\"' + b"{" * 200 + b'"]']
)
def test_many_brackets_are_not_deep(text):
    assert not is_too_deep(text)


@pytest.mark.parametrize("text", [b"[" * 200, b'"' + b"[" * 200, b'["' + b"[" * 200, b'"\\"' * 200 + b"[" * 200])
def test_what_is_never_closed_is_as_deep_as_it_opens(text):
    assert is_too_deep(text)
