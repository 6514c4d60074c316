"""From a request's tools to those the model is shown, which of them it may call, and back from the names it calls."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import MsgspecError, convert, json

from handlers.mapping.to_struct import FieldError, join, shown, to_struct
from handlers.wire.request import CreateResponse
from handlers.wire.tools import CustomTool, FunctionTool, Namespace, Tool, ToolChoice

JOINT = "__"  # templates know flat names only, and models write nothing but letters, digits and _ in them

CHOICE = "tool_choice"
SYNTAXES = ("lark", "regex")


class ToolName(NamedTuple):
    """A tool as the client knows it."""

    name: str
    namespace: str | None
    is_custom: bool = False


class Offer(NamedTuple):
    """A tool that the request offers, and where it stands in it."""

    name: ToolName
    tool: FunctionTool | CustomTool
    path: str

    @property
    def is_held(self) -> bool:
        """Whether the client asked that calls of this tool follow its schema or grammar, whatever the choice."""
        if isinstance(self.tool, FunctionTool):
            return self.tool.strict is True
        return self.tool.format is not None and self.tool.format.type == "grammar"

    @property
    def faulty(self) -> tuple[str, str]:
        """The row and the path for a tool that calls cannot be held to."""
        if isinstance(self.tool, FunctionTool):
            return "schema_invalid", join(self.path, "parameters")
        return "definition_invalid", join(self.path, "format", "definition")


class Toolbox(NamedTuple):
    """The tools the model is shown, all of them whatever the choice, and those it may or must call."""

    tools: list[dict[str, Any]]
    offers: dict[str, Offer]
    may_call: tuple[str, ...] = ()
    must_call: bool = False

    def restore(self, flat: str) -> ToolName:
        """Give the name a client knows; one the model made up stays as it is."""
        return self.offers[flat].name if flat in self.offers else ToolName(flat, None)


class UnknownChoiceError(Exception):
    """`tool_choice` names a tool that the request does not have."""


Offers = dict[str, Offer]


def to_flat(name: str, namespace: str | None) -> str:
    """Join a namespace and a name."""
    return f"{namespace}{JOINT}{name}" if namespace else name


def to_toolbox(request: CreateResponse) -> Toolbox:
    """Choose the tools to offer. Tools of types we do not serve are skipped. Raises FieldError, UnknownChoiceError."""
    offers = dict(_flatten(request.tools or []))
    may_call, must_call = _choose(offers, request.tool_choice)
    if must_call and not may_call:
        raise FieldError(CHOICE, "a call is required, but there is no tool to call")
    if not may_call:
        return Toolbox([], {})
    return Toolbox([_to_template(flat, offer.tool) for flat, offer in offers.items()], offers, may_call, must_call)


def to_input(arguments: str) -> str:
    """Give the input of a free-form tool out of the arguments it is called with as a function of one string."""
    try:
        return convert(json.decode(arguments), dict[str, str])["input"]
    except (MsgspecError, KeyError):
        return arguments


def _flatten(tools: list[dict[str, Any]], path: str = "tools", namespace: str | None = None) -> Iterator[Any]:
    for index, tool in enumerate(tools):
        where = join(path, index)
        match to_struct(tool, Tool, where).type:
            case "function":
                given = to_struct(tool, FunctionTool, where)
                yield to_flat(given.name, namespace), Offer(ToolName(given.name, namespace), given, where)
            case "custom":
                custom = _to_custom(tool, where)
                yield to_flat(custom.name, namespace), Offer(ToolName(custom.name, namespace, True), custom, where)  # noqa: FBT003 - a named tuple
            case "namespace" if namespace is None:
                space = to_struct(tool, Namespace, where)
                yield from _flatten(space.tools, join(where, "tools"), space.name)


def _to_custom(tool: dict[str, Any], where: str) -> CustomTool:
    given = to_struct(tool, CustomTool, where)
    form = given.format
    if form is None or form.type == "text":
        return given
    if form.type != "grammar":
        raise FieldError(join(where, "format", "type"), f"expected text or grammar, got {shown(form.type)}")
    if form.syntax not in SYNTAXES:
        raise FieldError(join(where, "format", "syntax"), f"expected lark or regex, got {shown(form.syntax)}")
    if not form.definition:
        raise FieldError(join(where, "format", "definition"), "it is required")
    return given


def _choose(offers: Offers, choice: str | dict[str, Any] | None) -> tuple[tuple[str, ...], bool]:
    if choice is None or isinstance(choice, str):
        if choice not in (None, "auto", "required", "none"):
            raise FieldError(CHOICE, f"expected auto, none, required or an object, got {shown(choice)}")
        return () if choice == "none" else tuple(offers), choice == "required"
    given = to_struct(choice, ToolChoice, CHOICE)
    if given.type == "allowed_tools":
        return _allow(given, offers)
    if given.type in {"function", "custom"}:
        return (_wanted(given, offers),), True
    raise FieldError(join(CHOICE, "type"), f"choices of type {shown(given.type)} are not supported")


def _allow(given: ToolChoice, offers: Offers) -> tuple[tuple[str, ...], bool]:
    if given.mode not in {"auto", "required", "none"}:
        raise FieldError(join(CHOICE, "mode"), f"expected auto or required, got {shown(given.mode)}")
    wanted = [_wanted(tool, offers) for tool in given.tools if tool.type in {"function", "custom"}]
    return () if given.mode == "none" else tuple(dict.fromkeys(wanted)), given.mode == "required"


def _wanted(choice: ToolChoice, offers: Offers) -> str:
    flat = to_flat(choice.name or "", choice.namespace)
    if flat not in offers or offers[flat].name.is_custom is not (choice.type == "custom"):
        raise UnknownChoiceError(choice.name or "")
    return flat


def _to_template(flat: str, tool: FunctionTool | CustomTool) -> dict[str, Any]:
    if isinstance(tool, CustomTool):
        form = tool.format
        grammar = {"syntax": form.syntax, "definition": form.definition} if form and form.type == "grammar" else None
        custom = {"name": flat, "description": tool.description or ""}
        return {"type": "custom", "custom": custom | ({"format": {"grammar": grammar}} if grammar else {})}
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": flat, "description": tool.description or "", "parameters": parameters},
    }
