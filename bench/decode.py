"""How fast one stream and eight decode through HTTP, against mlx-lm alone and against its server.

All decode the same greedy continuations of the same prompts, by turns.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

from engine.blas import load_fast_blas

load_fast_blas()

import mlx_lm  # noqa: E402 - after a fast BLAS
import msgspec  # noqa: E402
from mlx_lm.generate import BatchGenerator, stream_generate  # noqa: E402

from bench.asking import ask, frames, together  # noqa: E402
from bench.servers import interlock, mlx_lm_server  # noqa: E402
from bench.table import Row, compare, rounds  # noqa: E402
from engine.starter import NAME, ensure_starter  # noqa: E402

SUBJECTS = ("a heron", "two clocks", "the last tram", "an old map", "a mill", "the tide", "a lost glove", "winter")
TOKENS = 64
ROUNDS = 7
STREAMS_ROUNDS = 5


class Raw(NamedTuple):
    """mlx-lm without a server."""

    model: Any
    tokenizer: Any

    def chat(self, prompt: str) -> list[int]:
        """Render a prompt as both servers do."""
        tokens: list[int] = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True
        )
        return tokens

    def alone(self) -> float:
        """Decode one stream; tokens/s after the first token."""
        times = [
            time.perf_counter()
            for _ in stream_generate(self.model, self.tokenizer, self.chat(to_prompt(0, 0)), max_tokens=TOKENS)
        ]
        return (len(times) - 1) / (times[-1] - times[0])

    def eight(self, number: int) -> float:
        """Decode eight streams in one batch; tokens/s from the start."""
        batch = BatchGenerator(self.model, stop_tokens=[[token] for token in self.tokenizer.eos_token_ids])
        started, tokens, running = time.perf_counter(), 0, len(SUBJECTS)
        batch.insert([self.chat(prompt) for prompt in to_prompts(number)], max_tokens=[TOKENS] * running)
        while running:
            _, decoded = batch.next()  # type: ignore[no-untyped-call]
            tokens += len(decoded)
            running -= sum(one.finish_reason is not None for one in decoded)
        seconds = time.perf_counter() - started
        batch.close()  # type: ignore[no-untyped-call]
        return tokens / seconds


def to_prompt(number: int, at: int) -> str:
    """Write a prompt that no earlier round has asked, so that no cache knows it."""
    return f"{number}. Write a long story about {SUBJECTS[at]}."


def to_prompts(number: int) -> list[str]:
    """Write the prompts of one round."""
    return [to_prompt(number, at) for at in range(len(SUBJECTS))]


def to_body(prompt: str) -> dict[str, Any]:
    """Ask Interlock for a greedy answer."""
    return {"model": NAME, "input": prompt, "temperature": 0, "max_output_tokens": TOKENS}


def one_stream(url: str) -> float:
    """Decode one stream through HTTP; tokens/s after the first token."""
    heard = ask(url, to_body(to_prompt(0, 0)))
    return (heard.tokens - 1) / (heard.times[-1] - heard.times[0])


def eight_streams(url: str, number: int) -> float:
    """Decode eight streams through Interlock; tokens/s from the start."""
    seconds, answers = together(lambda prompt: ask(url, to_body(prompt)).tokens, to_prompts(number))
    return float(sum(answers)) / seconds


def eight_of_theirs(url: str, number: int) -> float:
    """Decode eight streams through mlx-lm's server; tokens/s from the start."""

    def one(prompt: str) -> int:
        asked = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": TOKENS}
        counted = {"stream": True, "stream_options": {"include_usage": True}}
        *_, last = frames(url, "/v1/chat/completions", {**asked, **counted})
        return to_tokens(last)

    seconds, answers = together(one, to_prompts(number))
    return float(sum(answers)) / seconds


def to_tokens(data: str) -> int:
    """Read the count that ends a stream of chat completions."""
    return int(msgspec.json.decode(data)["usage"]["completion_tokens"])


def measure() -> list[Row]:
    """Compare one stream and eight."""
    folder = ensure_starter()
    model, tokenizer, *_ = mlx_lm.load(str(folder))
    raw = Raw(model, tokenizer)
    with interlock() as ours, mlx_lm_server(Path(folder)) as theirs:
        print("one stream, tokens/s, against stream_generate")
        one = rounds(lambda: one_stream(ours.url), raw.alone, ROUNDS)
        print("eight streams, tokens/s, against BatchGenerator")
        numbers = iter(range(1, 1000))
        batch = rounds(lambda: eight_streams(ours.url, next(numbers)), lambda: raw.eight(next(numbers)), STREAMS_ROUNDS)
        print("eight streams, tokens/s, against mlx_lm.server")
        server = rounds(
            lambda: eight_streams(ours.url, next(numbers)),
            lambda: eight_of_theirs(theirs.url, next(numbers)),
            STREAMS_ROUNDS,
        )
    return [
        compare("one stream / `stream_generate`", "tokens/s", one, least=0.97),
        compare("8 streams / `BatchGenerator`", "tokens/s", batch, least=0.95),
        compare("8 streams / `mlx_lm.server`", "tokens/s", server, least=1.05),
    ]
