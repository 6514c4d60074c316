"""Whether the starter model obeys: `python -m bench.obey`. A required call, and an answer of a JSON schema, 100 times.

Sampled at temperature 1; each run is parsed and validated as a client would.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs import Draft202012Validator

from engine.blas import load_fast_blas

load_fast_blas()

from engine.loading import mlx_engine  # noqa: E402 - after a fast BLAS
from engine.mlx_engine import MlxEngine  # noqa: E402
from engine.pieces import Constraint, Finish, Piece, Sampling, Text, ToolCall  # noqa: E402
from engine.starter import ensure_starter  # noqa: E402

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
SAMPLING = Sampling(temperature=1, top_p=1, max_tokens=200)
SCHEMA = {
    "type": "object",
    "properties": {
        "sentiment": {"enum": ["good", "bad", "mixed"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "word": {"type": "string", "minLength": 1, "maxLength": 12},
    },
    "required": ["sentiment", "stars", "word"],
    "additionalProperties": False,
}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "", "parameters": PARAMETERS}}


class Task(NamedTuple):
    """One thing to ask for, and what makes its answer right."""

    name: str
    text: str
    constraint: Constraint
    tools: list[dict[str, Any]] | None
    is_right: Callable[[list[Piece]], bool]


async def main() -> None:
    """Print how often each came out right."""
    engine = mlx_engine(str(ensure_starter()))
    await engine.load()
    for task in TASKS:
        await count(engine, task)
    await engine.close()


async def count(engine: MlxEngine, task: Task) -> None:
    """Ask the same thing again and again."""
    tools = task.tools
    prompt = await engine.tokenize([{"role": "user", "content": task.text}], tools)
    started, tokens = time.perf_counter(), 0
    counts: Counter[str] = Counter()
    for _ in range(RUNS):
        grammar = await engine.constrain(prompt, task.constraint, tools)
        *pieces, finish = [piece async for piece in engine.decode(prompt, SAMPLING, tools, grammar=grammar)]
        if isinstance(finish, Finish):
            tokens += finish.completion_tokens
            counts["right" if task.is_right(pieces) else finish.reason] += 1
    seconds = time.perf_counter() - started
    print(f"{task.name}: {dict(counts)} of {RUNS}, {tokens / RUNS:.0f} tokens each, {seconds:.0f} s", flush=True)


def is_answer(pieces: list[Piece]) -> bool:
    """Tell whether the text is JSON of the schema."""
    text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    return Draft202012Validator(SCHEMA).is_valid(msgspec.json.decode(text))


def is_call(pieces: list[Piece]) -> bool:
    """Tell whether there is one call of the tool, with arguments of its schema, and no text."""
    said = [piece for piece in pieces if piece != Text("")]
    calls = [piece for piece in said if isinstance(piece, ToolCall) and piece.name == "get_weather"]
    valid = Draft202012Validator(PARAMETERS)
    return len(said) == 1 and [valid.is_valid(msgspec.json.decode(call.arguments)) for call in calls] == [True]


CALL = Constraint(may_call=("get_weather",), must_call=True, only_one=True)
TASKS = [
    Task("json_schema", "Review: a fine film.", Constraint(schema=SCHEMA), None, is_answer),
    Task("required call", "What is the weather in Oslo?", CALL, [TOOL], is_call),
]

if __name__ == "__main__":
    asyncio.run(main())
