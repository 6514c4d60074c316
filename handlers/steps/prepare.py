"""PREPARING: from items to the prompt's tokens, before any queue, so that a bad request costs no slot and no cache."""

from engine.errors import EngineError, GrammarError, TemplateError
from engine.pieces import Constraint
from handlers.exchange import Exchange
from handlers.lookup import look_up_row
from handlers.mapping.compaction import ASK
from handlers.mapping.references import to_references, to_resolved
from handlers.mapping.to_constraint import to_constraint, to_format, to_grammar_fault, to_told
from handlers.mapping.to_messages import Message, find_unseen, to_chat, to_items, to_messages
from handlers.mapping.to_row import has_turn, to_history, to_output
from handlers.mapping.to_struct import FieldError
from handlers.mapping.to_tools import UnknownChoiceError, to_toolbox
from handlers.mapping.tool_gate import Fault, drop_echoes, find_gate_fault, to_canonical, to_outstanding
from storage.rows import Missing


async def prepare(exchange: Exchange) -> str:
    """Map the chain and the input to messages, check that their calls fit, tokenize them, and compile what is asked."""
    try:
        exchange.items = to_items([] if exchange.request.input is None else exchange.request.input)
        exchange.toolbox = to_toolbox(exchange.request)
        exchange.constraint = to_constraint(exchange.request, exchange.toolbox)
        fault = await _resolve_references(exchange) or _refuse_unseen(exchange) or _map(exchange)
    except FieldError as wrong:
        fault = "field_invalid", {"param": wrong.param, "reason": wrong.reason}
    except UnknownChoiceError as unknown:
        fault = "choice_unknown", {"tool": str(unknown)}
    event, facts = fault or await _render(exchange)
    if event in {"prompt_made", "prompt_too_long"} and exchange.incoming.asked == "count":
        exchange.body = {"object": "response.input_tokens", "input_tokens": len(exchange.prompt)}
        return "prompt_counted"
    if event == "prompt_made" and exchange.constraint:
        event, facts = await _constrain(exchange, exchange.constraint)
    exchange.facts.update(facts)
    return event


async def _resolve_references(exchange: Exchange) -> Fault | None:
    services, named = exchange.services, to_references(exchange.items)
    stored = to_history(exchange.chain) if named else []
    for response_id in named:
        if services.store is not None:
            await services.writes.settled(response_id, services.settings.write_wait_ms / 1000)
            found = await look_up_row(services, response_id)
            stored += [] if isinstance(found, Missing) else to_output(found)
    exchange.items, missing = to_resolved(exchange.items, stored)
    return missing


def _refuse_unseen(exchange: Exchange) -> Fault | None:
    exchange.unseen = find_unseen(exchange.items)
    if exchange.unseen and exchange.services.settings.images == "refuse":
        return "image_refused", {"param": exchange.unseen[0]}
    return None


def _map(exchange: Exchange) -> Fault | None:
    history = exchange.history
    # after a prompt that was only taken up, the input goes on with it and may tell of calls of any conversation
    is_after_turn = bool(exchange.chain) and has_turn(exchange.chain[-1])
    if is_after_turn:
        known = [call.call_id for call in _last_turn(history).calls]
        exchange.items, fault = drop_echoes(exchange.items, known)
        if fault:
            return fault
    new = to_messages(exchange.items)
    if any(message.role == "tool" and not message.call_id for message in new):
        return "call_id_missing", {}
    if is_after_turn and (fault := find_gate_fault(to_outstanding(history), new)):
        return fault
    asking = [Message("user", ASK)] if exchange.incoming.asked == "compact" else []
    exchange.messages, fault = to_canonical([*history, *new, *asking])
    return fault


def _last_turn(history: list[Message]) -> Message:
    return next((message for message in reversed(history) if message.role == "assistant"), Message("assistant"))


def _effort(exchange: Exchange) -> str | None:
    reasoning = exchange.request.reasoning
    return reasoning.effort if reasoning else None


async def _render(exchange: Exchange) -> Fault:
    engine = exchange.binding.engine
    told = [text for text in (exchange.head.instructions, to_told(to_format(exchange.request))) if text]
    chat = to_chat(exchange.messages, "\n\n".join(told))
    try:
        exchange.prompt = await engine.tokenize(chat, exchange.toolbox.tools or None, _effort(exchange))
    except TemplateError as error:
        return "template_refused", {"reason": str(error)}
    except EngineError:
        return "model_broken", {}
    exchange.measured.prompt_tokens = length = len(exchange.prompt)
    facts = {"prompt_tokens": length, "limit": engine.context_length - 1}
    return "prompt_made" if length < engine.context_length else "prompt_too_long", facts


async def _constrain(exchange: Exchange, constraint: Constraint) -> Fault:
    try:
        exchange.grammar = await exchange.binding.engine.constrain(
            exchange.prompt, constraint, exchange.toolbox.tools or None
        )
    except GrammarError as error:
        return to_grammar_fault(error, exchange.toolbox, constraint)
    except EngineError:
        return "model_broken", {}
    return "prompt_made", {}
