"""From `text.format`, `tool_choice` and `parallel_tool_calls` to what the answer is held to, and what tells the model.

Where tools and a format are both asked for, the answer is calls or text of that format; a required call leaves no text.
"""

from typing import Any

from msgspec import json

from engine.errors import GrammarError
from engine.pieces import Constraint
from handlers.mapping.to_struct import FieldError, join
from handlers.mapping.to_tools import Toolbox
from handlers.mapping.tool_gate import Fault
from handlers.wire.request import CreateResponse, TextFormat

FORMAT = "text.format"
TEXT = TextFormat()


def to_format(request: CreateResponse) -> TextFormat:
    """Give the format of the answer's text. Raises FieldError."""
    asked = (request.text and request.text.format) or TEXT
    if asked.type == "json_schema":
        for field in ("name", "schema"):
            if getattr(asked, field) is None:
                raise FieldError(join(FORMAT, field), "it is required")
    return asked


def to_constraint(request: CreateResponse, toolbox: Toolbox) -> Constraint | None:
    """Say what the answer is held to, or None if nothing is asked. Raises FieldError."""
    schema = _to_schema(to_format(request))
    only_one = request.parallel_tool_calls is False and bool(toolbox.may_call)
    some = set(toolbox.may_call) != set(toolbox.offers)
    held = {flat for flat in toolbox.may_call if toolbox.offers[flat].is_held}
    if schema is None and not (toolbox.must_call or only_one or some or held):
        return None
    return Constraint(
        schema=schema,
        is_lenient=to_format(request).strict is not True,
        may_call=toolbox.may_call,
        must_call=toolbox.must_call,
        only_one=only_one,
        lenient=frozenset(set(toolbox.may_call) - held),
    )


def to_told(form: TextFormat) -> str:
    """Tell the model of the format: it is held to the keys, but what to write there is its own to find."""
    if form.type == "text":
        return ""
    if form.type == "json_object":
        return "Answer with one JSON object and nothing else."
    about = f"{form.name}: {form.description}" if form.description else f"{form.name}"
    return f"Answer with JSON of this schema and nothing else ({about}):\n{json.encode(form.schema).decode()}"


def to_grammar_fault(error: GrammarError, toolbox: Toolbox, constraint: Constraint) -> Fault:
    """Say which field of the request the answer cannot be held to."""
    if error.tool is not None:
        event, param = toolbox.offers[error.tool].faulty
    else:
        event, param = "schema_invalid", "tools" if constraint.schema is None else join(FORMAT, "schema")
    return event, {"param": param, "reason": str(error)}


def _to_schema(form: TextFormat) -> dict[str, Any] | None:
    return {"type": "object"} if form.type == "json_object" else form.schema if form.type == "json_schema" else None
