"""Tools for models whose chat template knows none: told of in the system message, in the words most models learned.

The calls are those of Hermes, which mlx-lm reads as `json_tools`. Free-form tools with a grammar have a call of their
own, for a grammar cannot be followed inside a JSON string: `<custom_tool_call>`, the name, a line break, and the input
as it is, up to the end of the answer.
"""

import json
from typing import Any

from mlx_lm.tool_parsers.json_tools import tool_call_end, tool_call_start

HERMES_START, HERMES_END = tool_call_start, tool_call_end
RAW_START = "<custom_tool_call>"

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]]

FUNCTIONS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

FREE_FORM = """\
# Free-form tools

To call one of these, end your answer with <custom_tool_call>, the tool's name, a line break, and the input as it is.
{tools}"""

FREE_FORM_TOOL = """
## {name}
{description}
The input follows this Lark grammar:
{definition}"""


def to_template(tokenizer: Any, messages: Messages, tools: Tools | None) -> tuple[Messages, Tools | None]:
    """Give the messages and the tools that a model's template is to render."""
    functions = [to_function(tool) for tool in tools or [] if not is_raw(tool)]
    told = [text for text in (tell_raw(tools or []),) if text]
    if not tokenizer.has_tool_calling:
        messages = to_plain(messages)
        if functions:
            told.insert(0, FUNCTIONS.format(tools="\n".join(map(json.dumps, functions))))
            functions = []
    return tell(messages, told), functions or None


def is_raw(tool: dict[str, Any]) -> bool:
    """Tell whether a tool is free-form and has a grammar that is more than a regular expression."""
    return tool["type"] == "custom" and definition(tool)[0] == "lark"


def definition(tool: dict[str, Any]) -> tuple[str, str]:
    """Give the syntax and the text of a free-form tool's grammar, or two empty ones."""
    grammar = tool["custom"].get("format", {}).get("grammar") or {}
    return grammar.get("syntax", ""), grammar.get("definition", "")


def name_of(tool: dict[str, Any]) -> str:
    """Give a tool's name."""
    return str(tool[tool["type"]]["name"])


def to_function(tool: dict[str, Any]) -> dict[str, Any]:
    """Give a free-form tool as a function of one string; a function stays as it is."""
    if tool["type"] == "function":
        return tool
    text: dict[str, Any] = {"type": "string"}
    if regex := definition(tool)[1]:
        text["pattern"] = f"^(?:{regex})$"
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
    custom = tool["custom"]
    function = {"name": custom["name"], "description": custom.get("description") or "", "parameters": parameters}
    return {"type": "function", "function": function}


def tell_raw(tools: Tools) -> str:
    """Describe the free-form tools that have a call of their own."""
    listed = [
        FREE_FORM_TOOL.format(
            name=name_of(tool), description=tool["custom"].get("description") or "", definition=definition(tool)[1]
        )
        for tool in tools
        if is_raw(tool)
    ]
    return FREE_FORM.format(tools="\n".join(listed)) if listed else ""


def tell(messages: Messages, told: list[str]) -> Messages:
    """Append to the leading system message, or lead with one."""
    if not told:
        return messages
    leading = messages[:1] if messages and messages[0]["role"] == "system" else []
    text = "\n\n".join([str(message["content"]) for message in leading] + told)
    return [{"role": "system", "content": text}, *messages[len(leading) :]]


def to_plain(messages: Messages) -> Messages:
    """Write calls and their outputs as text; the outputs of one turn are one message of the user."""
    plain: Messages = []
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            if plain and plain[-1].get("is_output"):
                plain[-1]["content"] += "\n" + text
            else:
                plain.append({"role": "user", "content": text, "is_output": True})
        else:
            plain.append(_to_plain_turn(message))
    return [{key: value for key, value in message.items() if key != "is_output"} for message in plain]


def _to_plain_turn(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        f"{HERMES_START}\n{json.dumps({key: call['function'][key] for key in ('name', 'arguments')})}\n{HERMES_END}"
        for call in message.get("tool_calls", [])
    ]
    if not calls:
        return message
    turn = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**turn, "content": "\n".join([part for part in [message.get("content")] if part] + calls)}
