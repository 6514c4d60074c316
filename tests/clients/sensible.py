"""A scripted engine that plays a sensible model: it does what it is told in backticks, and says what came of it.

It decides by the conversation, and obeys what it is held to. Asked to run commands, it runs one a turn with the shell
tool it is offered; asked something that an offered function answers, it calls that; it remembers a code word; asked for
JSON, it fills it with what it was told; else it says one of a few things.
"""

import json
import re
from typing import Any

from engine.pieces import Constraint, Finish, Grammar, Reasoning, Sampling, Text, ToolCall, Tools
from engine.scripted import Script, ScriptedDecoding, ScriptedEngine, ScriptedGrammar, think
from tests.clients.obeying import Told, check, to_functions, write

COMMAND = re.compile(r"`([^`]+)`")
CODE_WORD = re.compile(r"code word is (\w+)")
SUBJECT = re.compile(r"[A-Z]?[a-z]+$")  # the last word of get_weather, getWeather
SHELLS = ("exec_command", "shell")
ANSWERS = {
    "code word is": "Noted.",
    "code word": "I was not told it.",
    "hello": "Hello to you.",
    "Count": "1, 2, 3.",
    "capital of France": "The capital of France is Paris.",
}
FREE = Constraint()
Messages = list[dict[str, Any]]


class SensibleEngine(ScriptedEngine):
    """Each prompt is remembered with its conversation, so that its decode answers that and no other."""

    def __init__(self, context_length: int = 200_000) -> None:
        super().__init__(context_length=context_length)
        self._asked: dict[tuple[int, ...], Messages] = {}

    async def tokenize(self, messages: Messages, tools: Tools | None = None, effort: str | None = None) -> list[int]:
        whole = [{"content": json.dumps(message)} for message in messages]
        tokens = await super().tokenize(whole, tools, effort)
        self._asked[tuple(tokens)] = messages
        return tokens

    async def constrain(self, prompt: list[int], constraint: Constraint, tools: Tools | None = None) -> ScriptedGrammar:
        check(constraint, tools or [])
        return await super().constrain(prompt, constraint, tools)

    def decode(
        self,
        prompt: list[int],
        sampling: Sampling,
        tools: Tools | None = None,
        *,
        grammar: Grammar | None = None,
        owner: str = "",
    ) -> ScriptedDecoding:
        held = grammar.constraint if isinstance(grammar, ScriptedGrammar) else None
        script = to_script(self._asked[tuple(prompt)], tools or [], held)
        self.scripts.append(cut(script, len(prompt), sampling.max_tokens))
        return super().decode(prompt, sampling, tools, grammar=grammar, owner=owner)


def to_script(messages: Messages, tools: Tools, held: Constraint | None) -> Script:
    """Answer the conversation, without its end; a prompt that is only to be taken up may have no question yet."""
    since = next((n for n, message in enumerate(reversed(messages)) if message["role"] == "user"), None)
    if since is None:
        return []
    task, done = messages[-1 - since]["content"], [m for m in messages[len(messages) - since :] if m["role"] == "tool"]
    functions = {name: schema for name, schema in to_functions(tools).items() if held is None or name in held.may_call}
    if next_call := _to_call(task, len(done), functions, held or FREE):
        return think("I ", "look.") + next_call
    if held and held.schema is not None:
        return _say(write(Told(task).fill(held.schema, held.schema), held.schema, is_lenient=held.is_lenient))
    return _say(_report(done[-1]["content"]) if done else _answer(task, messages))


def cut(script: Script, prompt_tokens: int, max_tokens: int) -> Script:
    """Give the script its end: at the limit, or where it ends by itself."""
    kept = script[:max_tokens]
    thought = sum(isinstance(piece, Reasoning) for piece in kept)
    finish = Finish(
        reason="length" if len(script) > max_tokens else "stop",
        prompt_tokens=prompt_tokens,
        completion_tokens=len(kept),
        reasoning_tokens=thought,
    )
    return [*kept, finish]


def _to_call(task: str, done: int, functions: dict[str, Any], held: Constraint) -> Script:
    shell = next((name for name in SHELLS if name in functions), None)
    commands = COMMAND.findall(task)
    if shell and not held.must_call:
        return [ToolCall(name=shell, arguments=json.dumps({"cmd": commands[done]}))] if done < len(commands) else []
    wanted = next((name for name in functions if SUBJECT.search(name)[0].lower() in task), None)
    if held.must_call:
        wanted = wanted or next(iter(functions))
    elif done:
        wanted = None
    return [_fill(wanted, task, functions[wanted], held)] if wanted else []


def _fill(name: str, task: str, schema: dict[str, Any], held: Constraint) -> ToolCall:
    is_lenient = name not in held.may_call or name in held.lenient
    return ToolCall(name=name, arguments=write(Told(task).fill(schema, schema), schema, is_lenient=is_lenient))


def _answer(task: str, messages: Messages) -> str:
    told = [word for message in messages for word in CODE_WORD.findall(message["content"])]
    if "code word?" in task and told:
        return f"The code word is {told[-1]}."
    return next((answer for asked, answer in ANSWERS.items() if asked in task), f"You said: {task}")


def _report(output: str) -> str:
    """Say what a tool answered; a coding agent says more about a command than what it printed."""
    said = output.rpartition("Output:")[2].strip()
    return f"It says: {said}" if said else "Done."


def _say(text: str) -> Script:
    return [Text(word) for word in re.findall(r"\S+\s*", text)]
