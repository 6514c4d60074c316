"""From chat messages to the tokens of a prompt, by the model's own chat template."""

from typing import Any

import jinja2
import jinja2.meta
from mlx_lm.tokenizer_utils import TokenizerWrapper

from engine.errors import TemplateError
from engine.hermes import to_template
from engine.pieces import Tools

# Where nothing states a limit, refuse nothing: above any context length in use.
UNKNOWN_CONTEXT_LENGTH = 1 << 20
# A template refuses by raising, or trips over a message it was not written for.
UNTEMPLATABLE = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
CONTEXT_LENGTH_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "model_max_length")

# The switches that chat templates have for reasoning: a flag under one of these names, or the effort in words.
FLAGS = ("enable_thinking", "thinking")
WORDS = "reasoning_effort"
NEAREST = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}  # templates know low, medium and high


def context_length(model: Any, tokenizer: TokenizerWrapper) -> int:
    """Find the longest context that neither the model's configuration nor its tokenizer forbids."""
    args = vars(model.args)
    configs = [args, args.get("text_config") or {}]
    stated = [config.get(name) for config in configs for name in CONTEXT_LENGTH_NAMES]
    length = next((limit for limit in stated if limit), UNKNOWN_CONTEXT_LENGTH)
    # Hugging Face writes 10**30 for "not known".
    return min(length, tokenizer.model_max_length or length)


def to_prompt(
    tokenizer: Any, messages: list[dict[str, Any]], tools: Tools | None = None, effort: str | None = None
) -> list[int]:
    """Render messages, and the tools they may call, as the tokens of a prompt that the assistant is to continue."""
    if not tokenizer.has_chat_template:
        text = "The model's tokenizer has no chat template."
        raise TemplateError(text)
    switches = to_switches(tokenizer, effort)
    try:
        messages, tools = to_template(tokenizer, messages, tools)
        return list(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, **switches))
    except UNTEMPLATABLE as error:
        reason = (str(error) or type(error).__name__).strip()
        raise TemplateError(reason.partition("\n")[0]) from error


def to_switches(tokenizer: Any, effort: str | None) -> dict[str, Any]:
    """Say how much to reason in the words of the model's template, as far as it has any."""
    if effort is None:
        return {}
    known = variables(tokenizer.chat_template)
    flags: dict[str, Any] = {name: effort != "none" for name in FLAGS if name in known}
    return flags | ({WORDS: NEAREST.get(effort, effort)} if WORDS in known else {})


def variables(template: object) -> set[str]:
    """List what a template takes; one that is not Jinja takes nothing that is known here."""
    try:
        parsed = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(str(template))  # noqa: S701  only read
    except jinja2.TemplateSyntaxError:
        return set()
    return jinja2.meta.find_undeclared_variables(parsed)
