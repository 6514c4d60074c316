"""From decoded text to pieces, by the markers mlx-lm knows of a model: its reasoning and its tool calls.

A tool block is held back until it ends, for mlx-lm parses whole blocks. One that does not parse was a false alarm:
it is read again with the tool markers as text, and so is all of an answer to a request that offered no tools.
"""

import json
import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import msgspec.json
from mlx_lm.generate import TextStateMachine, make_text_state_machine
from mlx_lm.tool_parsers import json_tools

from engine.hermes import HERMES_END, HERMES_START, RAW_START, is_raw, to_function
from engine.pieces import Piece, Reasoning, Text, ToolCall, Tools
from engine.schemas import to_readable

log = logging.getLogger(__name__)

# The states of mlx-lm's machine; in any other one, such as the header of a message, there is nothing to show.
NORMAL, REASONING, TOOL = "normal", "reasoning", "tool"
# Blocks that are no model's own: a call as Hermes writes it, and one whose input is as it is up to the answer's end.
HERMES, RAW = "hermes", "raw"
BLOCKS = {TOOL, HERMES, RAW}
WHOLE_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
KINDS: dict[str, type[Text] | type[Reasoning]] = {NORMAL: Text, REASONING: Reasoning}


class Markers:
    """The pieces of one decode: give `read` the text of each token, then `end` the reason of its end.

    What is blank says nothing: neither a blank run of text or reasoning, nor the whitespace after a marker. Only an
    answer that begins with text keeps its leading whitespace, once there is more of it.
    """

    def __init__(self, tokenizer: Any, prompt: list[int], tools: Tools | None = None) -> None:
        state = first_state(tokenizer, prompt)
        self.reasoning_tokens = 0
        self._tokenizer = tokenizer
        self._tools = [to_readable(to_function(tool)["function"]) for tool in tools or []] or None
        self._without_tools = without_tools(tokenizer)
        self._scanner = Scanner(with_tools(tokenizer, tools) if tools else self._without_tools, state)
        self._parsers = {TOOL: tokenizer.tool_parser, HERMES: json_tools.parse_tool_call, RAW: parse_raw}
        self._block: list[str] = []
        self._block_state = NORMAL
        self._lead: str | None = ""  # whitespace a run began with; None once the run has said something
        self._keeps_lead = state == NORMAL
        self._pieces: list[Piece] = []

    def read(self, text: str) -> list[Piece]:
        """Give at least one piece: an empty `Text` if the token shows nothing yet."""
        self.reasoning_tokens += self._scanner.state == REASONING
        self._scan(self._scanner, text)
        return self._take_pieces() or [Text("")]

    def end(self, reason: Literal["stop", "length"]) -> list[Piece]:
        """Give what was held back. A tool block that the length limit has cut is dropped."""
        state, rest = self._scanner.state, self._scanner.take_pending()
        self._say(state, rest)
        if state in BLOCKS and reason == "stop":
            self._end_block(state)
        return self._take_pieces()

    def _scan(self, scanner: "Scanner", text: str) -> None:
        for state, said, marker in scanner.read(text):
            self._say(state, said)
            if marker:
                self._cross(state, scanner.state, marker)

    def _cross(self, left: str, entered: str, marker: str) -> None:
        if entered in BLOCKS:
            self._block, self._block_state = [marker], left
        elif left in BLOCKS:
            self._end_block(left, marker)
        elif left != entered:
            self._begin_run()
            if marker == self._tokenizer.tool_call_start:  # out of a header, for a request without tools
                self._say(entered, marker)

    def _say(self, state: str, text: str) -> None:
        if state in BLOCKS:
            self._block.append(text)
        elif state in KINDS and (text := self._visible(text)):
            self._pieces.append(KINDS[state](text))

    def _visible(self, text: str) -> str:
        if self._lead is None:
            return text
        text = self._lead + text
        if not text.strip():
            self._lead = text
            return ""
        self._lead = None
        return text if self._keeps_lead else text.lstrip()

    def _begin_run(self) -> None:
        self._lead = ""
        self._keeps_lead = False

    def _end_block(self, kind: str, end_marker: str = "") -> None:
        block, start_marker = "".join(self._block), self._block[0]
        if end_marker and is_in_string(block[len(start_marker) :]):
            self._block.append(end_marker)
            self._scanner.state = kind
            return
        # A model that thinks about its markers writes some before those it means.
        for start in dict.fromkeys((0, block.rfind(start_marker))):
            if calls := self._to_calls(kind, block[start + len(start_marker) :]):
                self._replay(block[:start])
                self._pieces += calls
                self._begin_run()
                return
        self._scanner.state = self._replay(block + end_marker)

    def _replay(self, block: str) -> str:
        """Say a false alarm as what it is without tools, and tell the state it ends in."""
        scanner = Scanner(self._without_tools, self._block_state)
        self._scan(scanner, block)
        self._say(scanner.state, scanner.take_pending())
        return scanner.state

    def _to_calls(self, kind: str, text: str) -> list[ToolCall]:
        try:
            parsed = self._parsers[kind](text, self._tools)
            return [to_call(call) for call in (parsed if isinstance(parsed, list) else [parsed])]
        except Exception as error:  # noqa: BLE001 - mlx-lm's parsers raise whatever a model's text makes them trip over
            log.info("A tool block did not parse: %s.", type(error).__name__)
            return []

    def _take_pieces(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


class Scanner:
    """mlx-lm's machine, stepped a character at a time: so it is known which marker matched, and where."""

    def __init__(self, tokenizer: Any, state: str) -> None:
        self._machine = make_text_state_machine(tokenizer)  # type: ignore[no-untyped-call]
        self._at = self._machine.make_state(state)
        self._pending = ""

    @property
    def state(self) -> str:
        """The machine's state; set it to read on from there."""
        return str(self._at[0])

    @state.setter
    def state(self, state: str) -> None:
        self._at = self._machine.make_state(state)

    def read(self, text: str) -> Iterator[tuple[str, str, str]]:
        """Give the text known not to be a marker, between the state it was read in and the marker that ended it."""
        said: list[str] = []
        for character in text:
            state = self.state
            self._at, segments = TextStateMachine.split(self._at, character)  # type: ignore[no-untyped-call]
            said.append(segments[0][1])
            self._pending = (self._pending + character)[len(said[-1]) :]
            if len(segments) > 1:
                yield state, "".join(said), self.take_pending()
                said.clear()
        yield self.state, "".join(said), ""

    def take_pending(self) -> str:
        """Give up what might have become a marker."""
        pending, self._pending = self._pending, ""
        return pending


def first_state(tokenizer: Any, prompt: list[int]) -> str:
    """Tell the state that an answer to the prompt begins in."""
    state = tokenizer.response_initial_state or (REASONING if opens_thinking(tokenizer, prompt) else NORMAL)
    return str(state)


def opens_thinking(tokenizer: Any, prompt: list[int]) -> bool:
    """Whether the prompt ends in the start of a think block; a user may write one anywhere else."""
    if not tokenizer.has_thinking:
        return False
    start = tokenizer.rfind_think_start(prompt)
    after = prompt[start + len(tokenizer.think_start_tokens) :]
    return start >= 0 and not tokenizer.decode(after).strip()


def with_tools(tokenizer: Any, tools: Tools) -> Any:
    """Give what `make_text_state_machine` reads of a tokenizer, with the markers of calls that no model's own."""
    edges = {state: list(edges) for state, edges in tokenizer.response_transitions.items()}
    if tokenizer.tool_call_start != HERMES_START:
        edges.setdefault(NORMAL, []).append((HERMES_START, HERMES))
        edges[HERMES] = [(HERMES_END, NORMAL)]
    if any(map(is_raw, tools)):
        edges.setdefault(NORMAL, []).append((RAW_START, RAW))
        edges[RAW] = []
    return SimpleNamespace(**view(tokenizer), response_transitions=edges)


def without_tools(tokenizer: Any) -> Any:
    """Give what `make_text_state_machine` reads of a tokenizer, but without its tool markers."""
    edges = {
        state: [(marker, NORMAL if entered == TOOL else entered) for marker, entered in edges]
        for state, edges in tokenizer.response_transitions.items()
    }
    return SimpleNamespace(**view(tokenizer) | {"has_tool_calling": False}, response_transitions=edges)


def view(tokenizer: Any) -> dict[str, Any]:
    """Give the markers of a tokenizer."""
    names = ("has_thinking", "think_start", "think_end", "structural_markers")
    tool_names = ("has_tool_calling", "tool_call_start", "tool_call_end")
    return {name: getattr(tokenizer, name) for name in (*names, *tool_names)}


def is_in_string(block: str) -> bool:
    """Whether a block of JSON breaks off inside a string: a marker there is text of the string."""
    return block.lstrip().startswith("{") and '"' in WHOLE_STRING.sub("", block)


def parse_raw(text: str, _: Tools | None = None) -> dict[str, Any]:
    """Read a call whose input is as it is: the name, a line break, and the input."""
    name, _line_break, given = text.partition("\n")
    return {"name": name.strip(), "arguments": {"input": given}}


def to_call(parsed: dict[str, Any]) -> ToolCall:
    """Map one call as a parser of mlx-lm gives it. Raises if it is none, or not fit to be sent as JSON."""
    name, arguments, call_id = parsed["name"], parsed.get("arguments"), parsed.get("id")
    if not isinstance(name, str) or not name:
        raise ValueError(name)
    if arguments is None or arguments == "":
        arguments = {}
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    call = ToolCall(name=name, arguments=arguments, call_id=call_id if isinstance(call_id, str) and call_id else None)
    msgspec.json.encode(call)  # half a surrogate pair is no JSON
    return call
