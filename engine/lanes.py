"""Where prompts are made: one that can hardly fit the model's context keeps none waiting that may."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

CHARACTERS_A_TOKEN = 8  # text with more is rare: English has four or five


class Lanes:
    """Two threads, each making one prompt after another: to count the tokens of ten megabytes takes ten seconds."""

    def __init__(self) -> None:
        self._fitting = ThreadPoolExecutor(1, thread_name_prefix="chat-template")
        self._unfitting = ThreadPoolExecutor(1, thread_name_prefix="chat-template-long")
        # Hugging Face tokenizers keep state between calls, so the second thread has its own, once it is needed.
        self._copied = lru_cache(maxsize=1)(deepcopy)

    async def run(
        self,
        to_prompt: Callable[..., list[int]],
        limit: int,
        tokenizer: Any,
        messages: list[dict[str, Any]],
        *options: Any,
    ) -> list[int]:
        """Make a conversation's prompt for a context of `limit` tokens; raises what `to_prompt` does."""
        loop = asyncio.get_running_loop()
        if characters(messages, *options) <= limit * CHARACTERS_A_TOKEN:
            return await loop.run_in_executor(self._fitting, to_prompt, tokenizer, messages, *options)
        return await loop.run_in_executor(
            self._unfitting, lambda: to_prompt(self._copied(tokenizer), messages, *options)
        )

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do what else needs the tokenizer, where no long prompt keeps it waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._fitting, work, *arguments)

    def close(self) -> None:
        """Take no more; what is being made is made to its end."""
        self._fitting.shutdown(wait=False)
        self._unfitting.shutdown(wait=False)


def characters(messages: list[dict[str, Any]], *options: Any) -> int:
    """Estimate a conversation's characters, without looking at each of them: texts are megabytes, the rest is not."""
    return sum(len(str(value)) for message in messages for value in message.values()) + len(str(options))
