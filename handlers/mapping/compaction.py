"""Compaction: a conversation made short, as a window of items that a client sends in its place.

The window is what the user said, word for word, and one item that holds the model's summary of the rest. The item's
content is opaque to clients, though it is encoded and not encrypted: it says nothing that its reader did not send.
"""

import base64
from typing import Any

import msgspec
from msgspec import Struct

from handlers.mapping.to_struct import FieldError, join
from handlers.wire.request import CreateResponse
from handlers.wire.response import Response

MARK = "interlock-1."
ASK = (
    "Summarize the conversation so far for somebody who is to carry on with it and sees nothing else of it: the task, "
    "what was decided and done, names, files, numbers and results that matter, and what is still to do. Write only the "
    "summary."
)
LEAD = "Summary of the conversation before this point:\n"


class Summary(Struct, frozen=True):
    """What the content of a compaction item holds."""

    text: str


class Compaction(Struct, frozen=True, kw_only=True, tag_field="object", tag="response.compaction"):
    """The answer of POST /v1/responses/compact."""

    id: str
    created_at: int
    output: list[dict[str, Any]]
    usage: Any


def to_compacting(request: CreateResponse) -> CreateResponse:
    """Make the request for a summary: free text, kept by nobody."""
    return msgspec.structs.replace(
        request, stream=False, store=False, background=False, tools=None, tool_choice=None, text=None, stop=None
    )


def to_compaction(response: Response, items: list[dict[str, Any]]) -> Compaction:
    """Make the new window of a conversation, given as whole items, from the response that sums it up."""
    text = "".join(
        part["text"]
        for item in msgspec.to_builtins(response.output)
        if item["type"] == "message"
        for part in item["content"]
    )
    said = [item for item in items if item["type"] == "message" and item.get("role") == "user"]
    summary = {
        "type": "compaction",
        "id": response.id.replace("resp_", "cmp_", 1),
        "encrypted_content": MARK + base64.urlsafe_b64encode(msgspec.json.encode(Summary(text))).decode(),
    }
    return Compaction(id=response.id, created_at=response.created_at, output=[*said, summary], usage=response.usage)


def to_summary(item: dict[str, Any], path: str) -> str:
    """Read a compaction item. Raises FieldError if another server made it, for then it is opaque here too."""
    content = item.get("encrypted_content")
    field = join(path, "encrypted_content")
    if not isinstance(content, str) or not content.startswith(MARK):
        raise FieldError(field, "only what this server's own /v1/responses/compact answered can be read")
    try:
        return LEAD + msgspec.json.decode(base64.urlsafe_b64decode(content.removeprefix(MARK)), type=Summary).text
    except (ValueError, msgspec.MsgspecError) as error:  # what base64 or JSON is damaged with
        raise FieldError(field, "it is damaged") from error
