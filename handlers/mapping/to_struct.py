"""From decoded JSON to a Struct, with faults that name the field by its path."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
LONGEST = 80  # characters of a client's value that a message repeats

# msgspec says where only in its text: "Expected `str`, got `int` - at `$.input[0].role`"
FAULT = re.compile(r"(?P<reason>.*?)(?: - at (?:key in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
ABSENT = re.compile(r"Object missing required field `(?P<field>.*)`")


class FieldError(Exception):
    """A field that cannot be served: its path, and the reason as a clause."""

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param}: {reason}")
        self.param = param
        self.reason = reason


def to_struct(value: object, kind: type[T], path: str = "") -> T:
    """Convert `value`, found at `path`. Raises FieldError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _to_fault(str(error), path) from None


def to_query(params: Mapping[str, Any], kind: type[T]) -> T:
    """Read the parameters of a query, which are text. Raises FieldError."""
    try:
        return msgspec.convert(params, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _to_fault(str(error), "") from None


def join(path: str, *steps: str | int) -> str:
    """Append keys and indices to a path: `input`, 0, `content` is `input[0].content`."""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def shown(value: Any) -> str:
    """Quote a client's value for a message, cut to a length a person reads."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _to_fault(text: str, path: str) -> FieldError:
    found = FAULT.fullmatch(text)
    reason, inner = (found["reason"], found["path"] or "") if found else (text, "")
    param = (path + inner).removeprefix(".") or "body"
    if absent := ABSENT.fullmatch(reason):
        return FieldError(join(param if param != "body" else "", absent["field"]), "it is required")
    return FieldError(param, (reason[:1].lower() + reason[1:]).replace(" | null`", "`"))
