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
    strict: bool | None = None


class CustomFormat(Struct, frozen=True):
    """What the input of a free-form tool looks like: any text, or what a grammar allows."""

    type: str = "text"
    syntax: str | None = None
    definition: str | None = None


class CustomTool(Struct, frozen=True):
    """A tool that takes one text instead of arguments."""

    name: str
    description: str | None = None
    format: CustomFormat | None = None


class Namespace(Struct, frozen=True):
    """Functions under one name, as coding agents send them for each tool server."""

    name: str
    description: str | None = None
    tools: list[dict[str, Any]] = []


class ToolChoice(Struct, frozen=True):
    """A choice that is not one word: one tool, or several that are allowed."""

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str = "auto"
    tools: list["ToolChoice"] = []
