"""The body of POST /v1/responses: wrong types are refused by path, unknown fields are ignored."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Name = Annotated[str, Meta(max_length=256)]
Key = Annotated[str, Meta(max_length=64)]
StopText = Annotated[str, Meta(min_length=1, max_length=1024)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Reasoning(Struct, frozen=True):
    """How much a reasoning model should think, and whether to summarise it."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Struct, frozen=True):
    """What the answer's text must look like: `text`, `json_object` or `json_schema`, which alone has the rest."""

    type: str = "text"
    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(Struct, frozen=True):
    """The `text` object of a request."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class CreateResponse(Struct, frozen=True, kw_only=True):
    """What a client may ask for. Limits are Open Responses', save that any positive `max_output_tokens` is served."""

    model: Name | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: Name | None = None
    stream: bool | None = None
    store: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=2147483647)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    # not in the specification, but wherever else models are served
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] | None = None
    # an object by the specification; anything else is ignored, as the reference server does
    metadata: Any = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    reasoning: Reasoning | None = None
    background: bool | None = None
    generate: bool | None = None  # of a WebSocket's frame: false only takes the prompt up
    # refused when present: to ignore them would answer another conversation
    conversation: Any = None
    prompt: Any = None
    parallel_tool_calls: bool | None = None
    # accepted, without effect here
    truncation: Literal["auto", "disabled"] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    service_tier: str | None = None
    safety_identifier: Key | None = None
    prompt_cache_key: Key | None = None
