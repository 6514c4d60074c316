"""Lark source in the making, as llguidance reads it, for one tokenizer.

A marker that is a token of its own must be written by that token: llguidance never lets text match a special one.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from llguidance import LLTokenizer

ANYTHING = "(?s:.*)"


class Run(NamedTuple):
    """A part of a marker: one special token, or text in as many tokens as it takes."""

    is_special: bool
    said: bytes
    token: str

    @property
    def text(self) -> str:
        return self.said.decode()

    @property
    def body(self) -> str:
        """Write it as a rule has it."""
        return self.token if self.is_special else json.dumps(self.text, ensure_ascii=False)


class Rules:
    """Rules and terminals, each under a name of its own; `start` is the caller's to add."""

    def __init__(self, tokens: LLTokenizer) -> None:
        self._tokens = tokens
        self._lines: list[str] = []
        self._names: dict[str, str] = {}

    def rule(self, body: str, options: str = "") -> str:
        """Add a rule and give its name."""
        return self._add("r", body, options)

    def terminal(self, body: str) -> str:
        """Add a terminal, which is one regular expression, and give its name."""
        return self._add("T", body)

    def spell(self, text: str) -> str:
        """Write a text that must stand as it is, its special tokens as tokens."""
        return " ".join(run.body for run in self._runs(text))

    def until(self, marker: str, regex: str = ANYTHING) -> str:
        """Write text that ends with the first `marker`, and the marker."""
        runs = self._runs(marker)
        special = next((n for n, run in enumerate(runs) if run.is_special), None)
        if special is None:
            return self.rule(f"/{regex}/", f"[suffix={runs[0].body}]")
        # spelled out in other tokens, the marker would look like one and not bind
        free = self.terminal(f"/{regex}/ & ~/{ANYTHING}{to_regex(runs[special].text)}{ANYTHING}/")
        # any text before the special token is free text's own end
        return " ".join([f"{free}?", *(run.body for run in runs[special:])])

    def free(self, without: Iterable[str] = ()) -> str:
        """Write any text that has none of the markers in it."""
        nots = "".join(f" & ~/{ANYTHING}{to_regex(marker)}{ANYTHING}/" for marker in without)
        return self.terminal(f"/{ANYTHING}/{nots}")

    def json(self, schema: dict[str, Any]) -> str:
        """Write a JSON value of a schema."""
        return self.rule(f"%json {json.dumps(schema)}")

    def source(self, start: str) -> str:
        """Give the whole, beginning with `start`."""
        return "\n".join(["%llguidance {}", f"start: {start}", *self._lines])

    def _add(self, letter: str, body: str, options: str = "") -> str:
        name = self._names.get(options + body)
        if name is None:
            name = self._names[options + body] = f"{letter}{len(self._lines)}"
            self._lines.append(f"{name}{options}: {body}")
        return name

    def _runs(self, text: str) -> list[Run]:
        """Cut a text into special tokens and the runs of text between them."""
        runs: list[Run] = []
        for token in self._tokens.tokenize_str(text, parse_special=True):
            is_special = self._tokens.is_special_token(token)
            said = self._tokens.decode_bytes([token])
            if runs and not is_special and not runs[-1].is_special:
                said = runs.pop().said + said
            runs.append(Run(is_special, said, f"<[{token}]>"))
        return runs


def either(bodies: Iterable[str]) -> str:
    """Write a choice."""
    return "(" + " | ".join(dict.fromkeys(bodies)) + ")"


def to_regex(text: str) -> str:
    """Write a regular expression that matches just this text, fit to stand between slashes."""
    return "".join(char if char.isalnum() or char == "_" else f"\\x{{{ord(char):x}}}" for char in text)
