"""What is measured of a request: numbers, noted by the steps that learn them."""

from msgspec import Struct


class Measured(Struct, omit_defaults=True):
    """As far as it is known: `ahead` waited for a place and `running` had one when it came."""

    ahead: int | None = None
    running: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    first_token_ms: float | None = None
    output_tokens: int | None = None
    tokens_per_second: float | None = None
