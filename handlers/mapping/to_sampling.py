"""From a request's sampling settings to the engine's."""

from engine.pieces import Sampling
from handlers.wire.request import CreateResponse

LOGPROBS = "message.output_text.logprobs"


def to_sampling(request: CreateResponse, room: int) -> Sampling:
    """Choose the sampling; `room` is how many tokens still fit in the model's context."""
    stop = request.stop or ()
    return Sampling(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        max_tokens=min(request.max_output_tokens or room, room),
        seed=request.seed,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        top_logprobs=_to_top_logprobs(request),
    )


def _to_top_logprobs(request: CreateResponse) -> int | None:
    """Either setting asks for log probabilities: `include` names them, `top_logprobs` says of how many tokens."""
    is_wanted = LOGPROBS in (request.include or []) or request.top_logprobs
    return request.top_logprobs or 0 if is_wanted else None
