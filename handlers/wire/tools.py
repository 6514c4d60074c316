"""Tools and tool choices, as clients send them. What is not named here is ignored."""

from typing import Any

from msgspec import Struct


class Tool(Struct, frozen=True):
    """Any tool; types that are not served are skipped."""

    type: str


class FunctionTool(Struct, frozen=True):
    """A function the model may call; `parameters` is its JSON schema, whole."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    # accepted and echoed; nothing holds the model to the schema yet
    strict: bool | None = None


class Namespace(Struct, frozen=True):
    """Functions under one name, as coding agents send them for each tool server."""

    name: str
    tools: list[dict[str, Any]] = []


class ToolChoice(Struct, frozen=True):
    """A choice that is not one word: one function, or several that are allowed."""

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str = "auto"
    tools: list["ToolChoice"] = []
