"""From a request's tools to those the chat template shows the model, and back from the names it calls."""

from typing import Any, NamedTuple

from handlers.mapping.to_struct import FieldError, join, shown, to_struct
from handlers.wire.request import CreateResponse
from handlers.wire.tools import FunctionTool, Namespace, Tool, ToolChoice

JOINT = "__"  # templates know flat names only, and models write nothing but letters, digits and _ in them

CHOICE = "tool_choice"


class ToolName(NamedTuple):
    """A tool as the client knows it."""

    name: str
    namespace: str | None


class Toolbox(NamedTuple):
    """The template's `tools`, and each flat name's own."""

    tools: list[dict[str, Any]]
    names: dict[str, ToolName]

    def restore(self, flat: str) -> ToolName:
        """Give the name a client knows; one the model made up stays as it is."""
        return self.names.get(flat, ToolName(flat, None))


class UnknownChoiceError(Exception):
    """`tool_choice` names a tool that the request does not have."""


def to_flat(name: str, namespace: str | None) -> str:
    """Join a namespace and a name."""
    return f"{namespace}{JOINT}{name}" if namespace else name


def to_toolbox(request: CreateResponse) -> Toolbox:
    """Choose the tools to offer. Tools of types we do not serve are skipped. Raises FieldError, UnknownChoiceError."""
    offered = dict(_flatten(request.tools or []))
    chosen = _choose(offered, request.tool_choice)
    return Toolbox(
        [_to_template(flat, tool) for flat, (_, tool) in chosen.items()],
        {flat: name for flat, (name, _) in chosen.items()},
    )


Offered = dict[str, tuple[ToolName, FunctionTool]]


def _flatten(tools: list[dict[str, Any]], path: str = "tools", namespace: str | None = None) -> Any:
    for index, tool in enumerate(tools):
        where = join(path, index)
        match to_struct(tool, Tool, where).type:
            case "function":
                given = to_struct(tool, FunctionTool, where)
                yield to_flat(given.name, namespace), (ToolName(given.name, namespace), given)
            case "namespace" if namespace is None:
                space = to_struct(tool, Namespace, where)
                yield from _flatten(space.tools, join(where, "tools"), space.name)


def _choose(offered: Offered, choice: str | dict[str, Any] | None) -> Offered:
    if choice == "none":
        return {}
    if choice is None or isinstance(choice, str):
        if choice not in (None, "auto", "required"):
            raise FieldError(CHOICE, f"expected auto, none, required or an object, got {shown(choice)}")
        return offered
    given = to_struct(choice, ToolChoice, CHOICE)
    if given.type == "allowed_tools":
        wanted = [_wanted(tool, offered) for tool in given.tools if tool.type == "function"]
        return {} if given.mode == "none" else {flat: offered[flat] for flat in wanted}
    if given.type == "function":
        flat = _wanted(given, offered)
        return {flat: offered[flat]}
    raise FieldError(join(CHOICE, "type"), f"choices of type {shown(given.type)} are not supported")


def _wanted(choice: ToolChoice, offered: Offered) -> str:
    flat = to_flat(choice.name or "", choice.namespace)
    if flat not in offered:
        raise UnknownChoiceError(choice.name or "")
    return flat


def _to_template(flat: str, tool: FunctionTool) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": flat, "description": tool.description or "", "parameters": parameters},
    }
