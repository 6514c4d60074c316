"""The KV caches of earlier prompts and answers, found by the longest prefix of tokens they share with a new prompt.

Only tokens decide, so a cache never changes an answer, and a client that sends its whole transcript again finds it as
well as one that names the response before. What is taken is a copy: no two decodes ever write to one cache.
"""

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache
from msgspec import Struct

from engine.pieces import CacheUse

Cache = list[Any]  # one of mlx-lm's caches for each layer
Tokens = npt.NDArray[np.int32]


def always() -> bool:
    """Say that all of a cache may be used."""
    return True


class Entry(Struct, eq=False):
    """One cache and the tokens it holds. Until `is_kept()`, only the first `prompt_length` of them may be used."""

    owner: str
    tokens: Tokens
    cache: Cache
    nbytes: int
    prompt_length: int
    is_kept: Callable[[], bool]

    def shares(self, tokens: Tokens) -> int:
        """Tell how many leading tokens of a prompt this cache can give, which is all of it unless it can be cut."""
        known = len(self.tokens) if self.is_kept() else self.prompt_length
        shared = count_shared(self.tokens[:known], tokens)
        return shared if shared == len(self.tokens) or can_cut(self.cache) else 0


class PromptCache:
    """A pool of caches within `max_bytes`, the least recently used of which leave first. For one thread alone."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._entries: list[Entry] = []  # the most recently used last

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def use(self) -> CacheUse:
        """How full it is; any thread may look."""
        return CacheUse(len(self._entries), self.nbytes, self.max_bytes)

    def fetch(self, owner: str, prompt: list[int]) -> tuple[Cache | None, int]:
        """Copy the cache that spares the most of a prompt, and tell how many tokens it holds: never the last one.

        The model must be given at least one token to answer, so a cache of the whole prompt is cut by one.
        """
        tokens = np.array(prompt[:-1], np.int32)
        best, shared = None, 0
        for entry in reversed(self._entries):
            if entry.owner == owner and (length := entry.shares(tokens)) > shared:
                best, shared = entry, length
        if best is None:
            return None, 0
        self._touch(best)
        # arrays are values in MLX, so this copies no more than what the decode will write
        cache = copy.deepcopy(best.cache)
        trim_prompt_cache(cache, len(best.tokens) - shared)
        return cache, shared

    def put(
        self,
        owner: str,
        tokens: list[int],
        cache: Cache,
        *,
        prompt_length: int | None = None,
        is_kept: Callable[[], bool] = always,
    ) -> None:
        """Keep the cache of these tokens, in place of those it makes needless."""
        # a cache cut out of a batch is lazy, and holds the memory of the whole batch until it is evaluated
        mx.eval([layer.state for layer in cache])
        added = Entry(
            owner=owner,
            tokens=np.array(tokens, np.int32),
            cache=cache,
            nbytes=sum(layer.nbytes for layer in cache),
            prompt_length=len(tokens) if prompt_length is None else prompt_length,
            is_kept=is_kept,
        )
        if added.nbytes > self.max_bytes:
            return
        if known := next((entry for entry in self._entries if replaces(entry, added)), None):
            self._touch(known)
            return
        self._remove([entry for entry in self._entries if replaces(added, entry)])
        self._entries.append(added)
        self.nbytes += added.nbytes
        self.shrink()

    def shrink(self, max_bytes: int | None = None) -> None:
        """Let the least recently used go until what is left fits."""
        limit = self.max_bytes if max_bytes is None else max_bytes
        while self._entries and self.nbytes > limit:
            self._remove(self._entries[:1])

    def clear(self) -> None:
        """Let everything go."""
        self._remove(list(self._entries))

    def _touch(self, entry: Entry) -> None:
        self._entries.remove(entry)
        self._entries.append(entry)

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._entries.remove(entry)
            self.nbytes -= entry.nbytes


def replaces(longer: Entry, entry: Entry) -> bool:
    """Tell whether all that an entry can give, a longer one can: only its prompt counts until its answer is kept."""
    sure = longer.tokens[: len(longer.tokens) if longer.is_kept() else longer.prompt_length]
    return (
        entry.owner == longer.owner
        and count_shared(entry.tokens, sure) == len(entry.tokens)
        and (len(entry.tokens) == len(longer.tokens) or can_cut(longer.cache))
    )


def can_cut(cache: Cache) -> bool:
    """Tell whether a cache can be cut back to fewer tokens, as far as it goes now."""
    # mlx-lm would also trim a chunked cache that has let go of its beginning
    return can_trim_prompt_cache(cache) and not any(getattr(part, "start_position", 0) for part in parts(cache))


def parts(cache: Cache) -> Cache:
    """Give the caches that a cache is made of: some layers have several."""
    return [part for layer in cache for part in getattr(layer, "caches", [layer])]


def count_shared(one: Tokens, other: Tokens) -> int:
    """Count the leading tokens that are the same."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length
