"""How soon a decode stops once its reader has left.

From the cancel to the moment the engine's thread has put the decode down, during prefill and between tokens.
"""

import asyncio
import statistics
import time

from engine.blas import load_fast_blas

load_fast_blas()

from bench.table import Row  # noqa: E402 - after a fast BLAS
from engine.loading import mlx_engine  # noqa: E402
from engine.mlx_engine import MlxEngine  # noqa: E402
from engine.pieces import Sampling  # noqa: E402
from engine.starter import ensure_starter  # noqa: E402

ROUNDS = 15
PROMPT_TOKENS = 600
TOKENS_BEFORE = 5
SAMPLING = Sampling(temperature=0, top_p=1, max_tokens=10_000)


def measure() -> list[Row]:
    """Give the medians and the worst of both."""
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    engine = mlx_engine(str(ensure_starter()))
    await engine.load()
    short = await engine.tokenize([{"role": "user", "content": "Write a long story."}])
    long = (short * PROMPT_TOKENS)[:PROMPT_TOKENS]
    rows = []
    for name, prompt, tokens in (("between tokens", short, TOKENS_BEFORE), ("in a long prompt", long, 0)):
        times = [await cancelled(engine, prompt, tokens, number) for number in range(ROUNDS)]
        worst = f"at worst {max(times):.0f} ms"
        rows.append(Row(f"from a reader that leaves to the stop, {name}", f"{statistics.median(times):.0f} ms", worst))
    await engine.close()
    return rows


async def cancelled(engine: MlxEngine, prompt: list[int], tokens: int, number: int) -> float:
    """Cancel one decode after so many tokens, or somewhere in its prefill; give milliseconds until it is put down."""
    decoding = engine.decode(prompt, SAMPLING)
    pieces = aiter(decoding)
    for _ in range(tokens):
        await anext(pieces)
    # a moment that falls anywhere in a step
    await asyncio.sleep(0.2 + 0.013 * number)
    started = time.perf_counter()
    decoding.cancel()
    while engine.is_decoding:  # noqa: ASYNC110 - the thread tells nobody when it is idle
        await asyncio.sleep(0.0005)
    return (time.perf_counter() - started) * 1000
