"""The response resource: all 31 keys of the Open Responses `ResponseResource`, none left out."""

from typing import Any, Literal

from msgspec import Struct

from handlers.wire.items import OutputItem

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class InputTokensDetails(Struct, frozen=True):
    """Where the input tokens came from."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """What the output tokens were spent on."""

    reasoning_tokens: int


class Usage(Struct, frozen=True, kw_only=True):
    """Counts of tokens the model read and wrote."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(Struct, frozen=True):
    """Why a response failed; `type` and `param` are there for clients that read it as an API error."""

    code: str
    message: str
    type: str = "server_error"
    param: str | None = None


class IncompleteDetails(Struct, frozen=True):
    """Why a response is incomplete."""

    reason: str


class Response(Struct, frozen=True, kw_only=True):
    """One response, at any moment of its life."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None
    status: Status
    incomplete_details: IncompleteDetails | None
    error: ResponseError | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[OutputItem]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    truncation: str
    parallel_tool_calls: bool
    text: dict[str, Any]
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: dict[str, str | None] | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None
