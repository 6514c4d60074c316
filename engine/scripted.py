"""An engine for tests: it plays lists of pieces instead of running a model, and remembers what it was asked."""

import asyncio
import json
from collections import deque
from typing import Any, Literal, Self

from engine.errors import DecodeError, GrammarError, TemplateError
from engine.pieces import (
    CacheUse,
    Constraint,
    Finish,
    Grammar,
    Piece,
    Processor,
    Reasoning,
    Sampling,
    Text,
    ToolCall,
    Tools,
)


class Pause:
    """A place in a script where the decode waits: await `reached`, do what is to be tested, then set `resume`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.resume = asyncio.Event()


Script = list[Piece | Exception | Pause]


def say(*texts: str, prompt_tokens: int = 0, reason: Literal["stop", "length"] = "stop") -> Script:
    """Write the script of an answer, one token a text."""
    finish = Finish(reason=reason, prompt_tokens=prompt_tokens, completion_tokens=len(texts))
    return [*(Text(text) for text in texts), finish]


def think(*texts: str) -> Script:
    """Write the part of a script that is reasoning, one token a text: `think("Hm.") + say("Hello")`."""
    return [Reasoning(text) for text in texts]


def call(name: str, arguments: Any, call_id: str | None = None) -> Script:
    """Write a tool call, its arguments given as JSON text or as what that holds: `call("time", {}) + stop()`."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [ToolCall(name=name, arguments=text, call_id=call_id)]


def stop(
    reason: Literal["stop", "length", "error"] = "stop",
    *,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    cached_tokens: int = 0,
    reasoning_tokens: int = 0,
) -> Script:
    """Write the end of a script."""
    return [
        Finish(
            reason=reason,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            reasoning_tokens=reasoning_tokens,
        )
    ]


class ScriptedDecoding:
    """One playing of a script. An exception in it is raised; without a `Finish` it just ends."""

    def __init__(self, script: Script) -> None:
        self.played = 0
        self.is_cancelled = False
        self.is_kept = False
        self._script = deque(script)
        self._over = asyncio.Event()
        self._error: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while self._script and not self._over.is_set():
            await self._wait(self._script[0])
            if self._over.is_set():
                break
            match self._script.popleft():
                case Exception() as error:
                    self.end(error)
                case Text() | Reasoning() | ToolCall() | Finish() as piece:
                    self.played += 1
                    if isinstance(piece, Finish):
                        self.end()
                    return piece
        self.end()
        failure, self._error = self._error, None
        raise failure or StopAsyncIteration

    async def begun(self) -> int:
        """Tell how many tokens the script's end says were cached; a script that begins with a pause waits there."""
        while self._script and isinstance(self._script[0], Pause) and not self._over.is_set():
            await self._wait(self._script.popleft())
        return next((entry.cached_tokens for entry in self._script if isinstance(entry, Finish)), 0)

    def keep(self) -> None:
        """Take note that the answer was delivered."""
        self.is_kept = True

    def cancel(self) -> None:
        """Stop before the next piece, and out of a pause."""
        self.is_cancelled = self.is_cancelled or not self._over.is_set()
        self._error = None
        self._over.set()

    def end(self, error: Exception | None = None) -> None:
        """Play nothing further, and raise `error` at the reader. Only the first end counts."""
        if not self._over.is_set():
            self._error = error
            self._over.set()

    async def _wait(self, entry: Piece | Exception | Pause) -> None:
        """Wait at a pause; at any other entry let the loop turn, as a model does."""
        if not isinstance(entry, Pause):
            await asyncio.sleep(0)
            return
        entry.reached.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (entry.resume, self._over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class ScriptedGrammar:
    """What `constrain` was asked for; it holds nobody to it."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint

    def processor(self, prompt_length: int | None = None) -> Processor:
        """There are no logits in a script."""
        raise NotImplementedError


class ScriptedEngine:
    """An `Engine` without a model. Each decode plays the next of `scripts`, or `script` once those are used up.

    A word is a token: the first word ever seen is 1, the next new one 2, and so on.
    """

    def __init__(self, script: Script | None = None, *, context_length: int = 8192, capacity: int = 1) -> None:
        self.context_length = context_length
        self.capacity = capacity
        self.healthy = True
        self.step_seconds = 0.0
        self.cache: CacheUse | None = None
        self.script: Script = script or []
        self.scripts: deque[Script] = deque()
        self.template_error: TemplateError | None = None
        self.grammar_error: GrammarError | None = None
        self.decodes: list[tuple[list[int], Sampling]] = []
        self.decodings: list[ScriptedDecoding] = []
        self.conversations: list[list[dict[str, Any]]] = []
        self.tools_templated: list[Tools | None] = []
        self.efforts: list[str | None] = []
        self.owners: list[str] = []
        self.loads = 0
        self.tools_decoded: list[Tools | None] = []
        self.constraints: list[tuple[list[int], Constraint, Tools | None]] = []
        self.grammars_decoded: list[Grammar | None] = []
        self._vocabulary: dict[str, int] = {}

    @property
    def cancelled(self) -> int:
        """How many decodes were cancelled before their end."""
        return sum(decoding.is_cancelled for decoding in self.decodings)

    async def load(self) -> None:
        """Be ready, again if need be: there is nothing to load."""
        self.loads += 1
        self.healthy = True

    async def tokenize(
        self, messages: list[dict[str, Any]], tools: Tools | None = None, effort: str | None = None
    ) -> list[int]:
        """Give each whitespace-separated word of the messages' contents its token; raises `template_error` if set."""
        self.conversations.append(messages)
        self.tools_templated.append(tools)
        self.efforts.append(effort)
        if self.template_error:
            raise self.template_error
        words = [word for message in messages for word in str(message.get("content") or "").split()]
        return [self._vocabulary.setdefault(word, len(self._vocabulary) + 1) for word in words]

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> ScriptedGrammar:
        """Take note of what is asked; raises `grammar_error` if set."""
        self.constraints.append((prompt, constraint, tools))
        if self.grammar_error:
            raise self.grammar_error
        return ScriptedGrammar(constraint)

    def decode(
        self,
        prompt: list[int],
        sampling: Sampling,
        tools: Tools | None = None,
        *,
        grammar: Grammar | None = None,
        owner: str = "",
    ) -> ScriptedDecoding:
        """Start playing."""
        self.decodes.append((prompt, sampling))
        self.tools_decoded.append(tools)
        self.owners.append(owner)
        self.grammars_decoded.append(grammar)
        decoding = ScriptedDecoding(self.scripts.popleft() if self.scripts else self.script)
        self.decodings.append(decoding)
        return decoding

    async def close(self) -> None:
        """Break off every decode."""
        self.healthy = False
        for decoding in self.decodings:
            decoding.end(DecodeError("The engine was closed."))
