"""What is measured of a request: numbers, each noted where it is learned."""

from msgspec import Struct


class Measured(Struct, omit_defaults=True):
    """What is known so far, by the names that the facts of a trace have.

    When it came to the queue, `ahead` requests waited for a place and `running` had one. `first_token_ms` is how long
    after its arrival the first of the output was decoded.
    """

    ahead: int | None = None
    running: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    first_token_ms: float | None = None
    output_tokens: int | None = None
    tokens_per_second: float | None = None
