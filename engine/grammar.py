"""From what an answer is held to, to a grammar, to the logits that may be sampled at each step.

An answer is reasoning, if the model does that, and then text of a schema, or free text, or calls. The end of the
sequence may come only where the grammar is satisfied.
"""

import json
import logging
from collections.abc import Iterable
from typing import Any

import llguidance.hf
import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from engine.dialects import Dialect, Signature, to_calls, to_dialect
from engine.errors import GrammarError
from engine.hermes import RAW_START, definition, is_raw, name_of, to_function
from engine.lark import Rules, either
from engine.markers import NORMAL, REASONING, first_state
from engine.pieces import Constraint, Tools
from engine.schemas import to_held, to_parameters

log = logging.getLogger(__name__)

LONGEST_REASON = 200  # characters


class Processor:
    """The logits processor of one decode, as mlx-lm calls it. `failure` tells of a grammar that broke off midway."""

    def __init__(self, matcher: LLMatcher, tokens: LLTokenizer, prompt_length: int | None = None) -> None:
        self.failure: str | None = None
        self._matcher = matcher
        self._eos = tokens.eos_tokens
        self._bits = allocate_token_bitmask(1, tokens.vocab_size)
        self._seen = prompt_length

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Forbid every token that the grammar does not allow next; `tokens` begins with the prompt."""
        if self._seen is not None:
            self._consume(tokens[self._seen :].tolist())
        self._seen = tokens.size
        return mx.where(self._allowed(logits.shape[-1]), logits, mx.array(-mx.inf, logits.dtype))

    def _consume(self, tokens: Any) -> None:
        for token in tokens:
            if not self._matcher.is_stopped():
                self._matcher.consume_token(token)

    def _allowed(self, size: int) -> mx.array:
        # a model may have more logits than its tokenizer has tokens; unpackbits makes those 0
        if not self._matcher.is_stopped():
            fill_next_token_bitmask(self._matcher, self._bits)
        allowed = np.unpackbits(self._bits.view(np.uint8)[0], count=size, bitorder="little")
        if self._matcher.is_stopped() or not allowed.any():
            self._note_failure(allowed.any())
            allowed[:] = 0
            allowed[[token for token in self._eos if token < size]] = 1
        return mx.array(allowed.astype(bool))

    def _note_failure(self, is_open: Any) -> None:
        if self.failure is None and (self._matcher.is_error() or not is_open):
            self.failure = self._matcher.get_error() or "no token of the model may follow"
            log.error("A grammar broke off: %s", self.failure.partition("\n")[0])


class CompiledGrammar:
    """A `Grammar` of llguidance."""

    def __init__(self, matcher: LLMatcher, tokens: LLTokenizer) -> None:
        self._matcher = matcher
        self._tokens = tokens

    def processor(self, prompt_length: int | None = None) -> Processor:
        """Begin one decode, or go on with one that has tokens beyond its prompt."""
        return Processor(self._matcher.deep_copy(), self._tokens, prompt_length)


class Compiler:
    """Compiles for one model. llguidance's view of its tokenizer takes about a second to make."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        try:
            fast = tokenizer._tokenizer  # noqa: SLF001 - llguidance takes no wrapper
            self._tokens = llguidance.hf.from_tokenizer(fast, eos_token=sorted(tokenizer.eos_token_ids))
        except (ValueError, TypeError) as error:
            text = "the tokenizer of this model is of a kind that cannot be held to a grammar"
            raise GrammarError(text) from error

    def compile(self, prompt: list[int], constraint: Constraint, tools: Tools | None) -> CompiledGrammar:
        """Make the grammar of the answers to a prompt. Raises GrammarError."""
        callable_ = [tool for tool in tools or [] if name_of(tool) in constraint.may_call]
        raw = [tool for tool in callable_ if is_raw(tool)]
        if constraint.schema is not None:
            self._check(LLMatcher.grammar_from_json_schema(to_schema(constraint)), None)
        signatures = [self._sign(tool, constraint) for tool in callable_ if not is_raw(tool)]
        for tool in raw:
            self._check(LLMatcher.grammar_from_lark(definition(tool)[1]), name_of(tool))
        source = Answer(Rules(self._tokens), self._tokenizer, constraint, signatures, raw).source(prompt)
        grammars = [{"name": "answer", "lark_grammar": source}]
        grammars += [{"name": raw_name(n), "lark_grammar": definition(tool)[1]} for n, tool in enumerate(raw)]
        matcher = LLMatcher(self._tokens, json.dumps({"grammars": grammars}))
        if matcher.is_error():
            raise GrammarError(to_reason(matcher.get_error()))
        return CompiledGrammar(matcher, self._tokens)

    def _sign(self, tool: dict[str, Any], constraint: Constraint) -> Signature:
        function = to_function(tool)["function"]
        parameters = to_parameters(function)
        if parameters.get("type", "object") != "object":
            text = "the arguments of a tool are an object"
            raise GrammarError(text, function["name"])
        held = to_held(parameters, is_lenient=function["name"] in constraint.lenient)
        if tool["type"] == "custom" and (regex := definition(tool)[1]):
            self._check(LLMatcher.grammar_from_regex(regex), function["name"])
        self._check(LLMatcher.grammar_from_json_schema(held), function["name"])
        return Signature(function["name"], held)

    def _check(self, grammar: str, tool: str | None) -> None:
        is_wrong, said = LLMatcher.validate_grammar_with_warnings(grammar, self._tokens)
        if is_wrong:
            raise GrammarError(to_reason(said[0]), tool)


class Answer:
    """The grammar of one answer, part by part."""

    def __init__(
        self,
        rules: Rules,
        tokenizer: Any,
        constraint: Constraint,
        signatures: list[Signature],
        raw: Tools,
    ) -> None:
        self._rules = rules
        self._tokenizer = tokenizer
        self._constraint = constraint
        self._signatures = signatures
        self._raw = raw
        self._dialect: Dialect = to_dialect(tokenizer, signatures)

    def source(self, prompt: list[int]) -> str:
        """Give the Lark source of answers to a prompt."""
        return self._rules.source(f"{self._lead(first_state(self._tokenizer, prompt))} {self._body()}")

    def _lead(self, state: str) -> str:
        """Write what comes before the answer: reasoning that was begun or may be, or the header of a message."""
        rules, tokenizer = self._rules, self._tokenizer
        if state not in {NORMAL, REASONING}:
            markers = [marker for marker, entered in tokenizer.response_transitions[state] if entered == NORMAL]
            return either(map(rules.spell, markers))
        if not tokenizer.has_thinking:
            return ""
        thought = rules.rule(f"{rules.until(tokenizer.think_end)} {rules.terminal('/' + chr(92) + 'n{1,2}/')}?")
        return thought if state == REASONING else rules.rule(f"({rules.spell(tokenizer.think_start)} {thought})?")

    def _body(self) -> str:
        constraint = self._constraint
        if constraint.schema is None and not constraint.must_call:
            return self._text_and_calls()
        bodies = [] if constraint.schema is None or constraint.must_call else [self._rules.json(to_schema(constraint))]
        return either([*bodies, *self._calls()])

    def _calls(self) -> Iterable[str]:
        """Write calls and nothing else; a raw one takes all that follows it, so it is the last."""
        if not (self._signatures or self._raw):
            return
        begin = self._rules.spell(self._dialect.start)
        raws = [f"{self._rules.spell(RAW_START)} {self._raw_call(n)}" for n in range(len(self._raw))]
        if not self._signatures:
            yield from raws
            return
        call, only_one = self._call(begin), self._constraint.only_one
        yield call if only_one else f"{call} ({self._gap()}? {call})*"
        for raw in raws:
            yield raw if only_one else f"({call} {self._gap()}?)* {raw}"

    def _text_and_calls(self) -> str:
        """Write free text, held to the form of a call from its marker on."""
        rules, only_one = self._rules, self._constraint.only_one
        markers = [self._dialect.start, RAW_START] if self._raw else [self._dialect.start]
        native = self._tokenizer.tool_call_start
        end = rules.rule(rules.free([*markers, native] if native and native not in markers else markers))
        call = self._call(rules.until(self._dialect.start)) if self._signatures else ""
        raws = [f"{rules.until(RAW_START)} {self._raw_call(n)}" for n in range(len(self._raw))]
        if only_one:
            return either([f"{end}?", *filter(None, [call]), *raws])
        lead = f"{call}*" if call else ""
        return f"{lead} {either([*raws, f'{end}?'])}"

    def _call(self, begin: str) -> str:
        return to_calls(self._rules, self._dialect, self._signatures, begin, only_one=self._constraint.only_one)

    def _raw_call(self, number: int) -> str:
        return f"{self._rules.spell(name_of(self._raw[number]) + chr(10))} @{raw_name(number)}"

    def _gap(self) -> str:
        return self._rules.terminal(r"/\n{1,2}/")


def to_schema(constraint: Constraint) -> dict[str, Any]:
    """Give the schema of an answer's text, as it is held to."""
    return to_held(constraint.schema or {}, is_lenient=constraint.is_lenient)


def raw_name(number: int) -> str:
    """Name the grammar of a free-form tool."""
    return f"input_{number}"


def to_reason(said: str) -> str:
    """Make a clause of llguidance's message: what its last `error:` says, else its first line."""
    lines = said.strip().splitlines() or ["it cannot be compiled"]
    reason = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[0])
    return reason[:LONGEST_REASON].rstrip(".")
