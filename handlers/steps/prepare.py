"""PREPARING: from items to the prompt's tokens, before any queue, so that a bad request costs no slot."""

from engine.errors import EngineError, TemplateError
from handlers.exchange import Exchange
from handlers.mapping.to_messages import to_chat, to_items, to_messages
from handlers.mapping.to_struct import FieldError


async def prepare(exchange: Exchange) -> str:
    """Map the chain and the input to messages, render and tokenize them, and see that they fit."""
    request, engine = exchange.request, exchange.binding.engine
    try:
        exchange.items = to_items(request.input or "")
        messages = [*exchange.history, *to_messages(exchange.items)]
    except FieldError as fault:
        exchange.facts.update(param=fault.param, reason=fault.reason)
        return "field_invalid"
    try:
        exchange.prompt = await engine.tokenize(to_chat(messages, exchange.head.instructions))
    except TemplateError as error:
        exchange.facts["reason"] = str(error)
        return "template_refused"
    except EngineError:
        return "model_broken"
    exchange.facts.update(prompt_tokens=len(exchange.prompt), limit=engine.context_length - 1)
    return "prompt_made" if len(exchange.prompt) < engine.context_length else "prompt_too_long"
