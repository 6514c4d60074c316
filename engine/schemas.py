"""JSON schemas as they are held to: written like `json.dumps`, and closed where they say nothing of further keys."""

import json
from typing import Any

Schema = dict[str, Any]

# where schemas are merged, one that was closed would forbid the keys of the other
MERGING = ('"allOf"', '"$ref"', '"unevaluatedProperties"')
CHOICES = ("anyOf", "oneOf")


def to_held(schema: Schema, *, is_lenient: bool) -> Schema:
    """Give the schema that llguidance is to compile; lenient, it leaves out what cannot be enforced."""
    text = json.dumps(schema)
    held = schema if any(word in text for word in MERGING) else to_closed(schema)
    # fixed separators: free whitespace is where a small model gets lost
    written = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": is_lenient}
    return {**held, "x-guidance": written}


def to_closed(schema: Any) -> Any:
    """Forbid keys that an object does not name, unless it says that it takes others; every answer stays valid."""
    if not isinstance(schema, dict):
        return schema
    closed = {key: [to_closed(part) for part in value] if key in CHOICES and isinstance(value, list) else value
              for key, value in schema.items()}  # fmt: skip
    for key in ("items", "additionalProperties"):
        if key in schema:
            closed[key] = to_closed(schema[key])
    named = schema.get("properties")
    if isinstance(named, dict):
        closed["properties"] = {name: to_closed(part) for name, part in named.items()}
        if not any(key in schema for key in ("patternProperties", *CHOICES)):
            closed.setdefault("additionalProperties", False)
    return closed


def to_parameters(function: dict[str, Any]) -> Schema:
    """Give the schema of a tool's arguments; a tool without one takes none."""
    return function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}


def to_readable(function: dict[str, Any]) -> dict[str, Any]:
    """Give a tool as mlx-lm's parsers can read it, some of which tell strings from JSON by a plain `type` only."""
    root = to_parameters(function)
    plain = {name: _to_plain(resolved(schema, root)) for name, schema in properties(root).items()}
    return {"type": "function", "function": {**function, "parameters": {**root, "properties": plain}}}


def _to_plain(schema: Any) -> Any:
    if isinstance(schema, dict) and isinstance(schema.get("type"), str):
        return schema
    return {"type": "string" if is_string(schema) else "object"}


def properties(schema: Schema) -> dict[str, Any]:
    """Give the arguments a tool names."""
    named = schema.get("properties")
    return named if isinstance(named, dict) else {}


def is_string(schema: Any) -> bool:
    """Tell whether a value may be a string: written without quotes, it could not be told from other values."""
    if not isinstance(schema, dict):
        return True
    words, kinds = to_words(schema), schema.get("type")
    if words is not None:
        return all(isinstance(word, str) for word in words)
    if kinds is not None:
        return kinds == "string" or "string" in kinds
    choices = [choice for key in CHOICES for choice in schema.get(key) or []]
    return any(map(is_string, choices)) if choices else "allOf" not in schema


def to_words(schema: Any) -> list[Any] | None:
    """List the values a schema names one by one."""
    if not isinstance(schema, dict):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def resolved(schema: Any, root: Schema) -> Any:
    """Follow a reference into `$defs` or `definitions`."""
    pointer = schema.get("$ref") if isinstance(schema, dict) else None
    place, _, name = pointer.removeprefix("#/").partition("/") if isinstance(pointer, str) else ("", "", "")
    found = root.get(place) if place in {"$defs", "definitions"} else None
    return found[name] if isinstance(found, dict) and name in found else schema


def rooted(schema: Schema, root: Schema) -> Schema:
    """Give a part of a schema with the definitions it may refer to."""
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **schema}
