"""From a request's sampling settings to the engine's."""

from engine.pieces import Sampling
from handlers.wire.request import CreateResponse


def to_sampling(request: CreateResponse, room: int) -> Sampling:
    """Choose the sampling; `room` is how many tokens still fit in the model's context."""
    return Sampling(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        max_tokens=min(request.max_output_tokens or room, room),
    )
