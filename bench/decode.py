"""Decode speed through HTTP against raw `mlx_lm.stream_generate`, in one run: `python -m bench.decode`.

Both decode the same greedy continuation of the same prompt, by turns, so that a noisy machine is noisy for both. A rate
is tokens after the first, over the time since the first.
"""

import http.client
import json
import statistics
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from engine.blas import load_fast_blas

load_fast_blas()

import mlx_lm  # noqa: E402 - after a fast BLAS
from mlx_lm.generate import stream_generate  # noqa: E402

from engine.starter import NAME, ensure_starter  # noqa: E402
from tests.live import serving  # noqa: E402

PROMPT = "Write a long story about a heron who learns to play chess."
TOKENS = 64
ROUNDS = 7
GOAL = 0.97


def main() -> None:
    """Print tokens/s of each round, the medians, and the ratio."""
    model, tokenizer, *_ = mlx_lm.load(str(ensure_starter()))
    chat = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True)
    with serving("handlers.cli", "serve", "--port", "0", "--db", ":memory:") as server:
        server.ask_until(200, "GET", "/health")
        pairs = list(rounds(lambda: raw(model, tokenizer, chat), lambda: through_http(server.url)))
    ratios = [http_rate / raw_rate for raw_rate, http_rate in pairs]
    print(f"raw stream_generate  {statistics.median(rate for rate, _ in pairs):6.2f} tokens/s (median of {ROUNDS})")
    print(f"through HTTP         {statistics.median(rate for _, rate in pairs):6.2f} tokens/s")
    print(
        f"ratio                {statistics.median(ratios):6.3f} (goal {GOAL}; {min(ratios):.3f} to {max(ratios):.3f})"
    )


def rounds(one: Callable[[], float], other: Callable[[], float]) -> Iterator[tuple[float, float]]:
    """Take both rates in each round, the first by turns; one round more at the start warms up."""
    for number in range(ROUNDS + 1):
        if number % 2:
            pair = (one(), other())
        else:
            second = other()
            pair = (one(), second)
        if number:
            print(f"  raw {pair[0]:.2f}, HTTP {pair[1]:.2f}")
            yield pair


def raw(model: Any, tokenizer: Any, chat: list[int]) -> float:
    """Decode with mlx-lm alone."""
    times = [time.perf_counter() for _ in stream_generate(model, tokenizer, chat, max_tokens=TOKENS)]
    return (len(times) - 1) / (times[-1] - times[0])


def through_http(url: str) -> float:
    """Decode through the server, as a stream."""
    body = {"model": NAME, "input": PROMPT, "temperature": 0, "max_output_tokens": TOKENS, "stream": True}
    times = []
    for name, data in stream(url, body):
        if name == "response.output_text.delta":
            times.append(time.perf_counter())
        elif name in {"response.completed", "response.incomplete"}:
            tokens = json.loads(data)["response"]["usage"]["output_tokens"]
    return (tokens - 1) / (times[-1] - times[0])


def stream(url: str, body: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Post a request and read its frames as name and data."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
    connection.request("POST", "/v1/responses", json.dumps(body), {"Content-Type": "application/json"})
    name = ""
    for line in connection.getresponse():
        if line.startswith(b"event: "):
            name = line[7:-1].decode()
        elif line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield name, line[6:]
    connection.close()


if __name__ == "__main__":
    main()
