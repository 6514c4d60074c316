"""From a request's sampling settings to the engine's."""

from engine.pieces import Sampling
from handlers.wire.request import CreateResponse


def to_sampling(request: CreateResponse, room: int) -> Sampling:
    """Choose the sampling; `room` is how many tokens still fit in the model's context."""
    top_p = 1.0 if request.top_p is None else request.top_p
    temperature = 1.0 if request.temperature is None else request.temperature
    return Sampling(
        # a nucleus of nothing is the likeliest token; mlx-lm reads top_p 0 as "off"
        temperature=temperature if top_p else 0.0,
        top_p=top_p or 1.0,
        max_tokens=min(request.max_output_tokens or room, room),
    )
