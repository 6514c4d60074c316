"""EMITTING and FAILING: the one event that ends a response, sent and seen to leave."""

from handlers.exchange import Exchange
from handlers.mapping.to_response import STATUS, Ending, to_response, to_usage
from handlers.wire.events import TERMINAL, Failed
from handlers.wire.response import ResponseError
from machines.exchange import TERMINALS


async def emit_terminal(exchange: Exchange) -> str:
    """Send the terminal event of a response that ended by itself or met its limit."""
    kind = TERMINALS[exchange.event]
    ending = Ending(
        status=STATUS[kind],
        completed_at=int(exchange.services.clock()),
        output=exchange.output.items,
        usage=to_usage(exchange.finish) if exchange.finish else None,
    )
    exchange.response = to_response(exchange.head, ending)
    await exchange.outbox.deliver(TERMINAL[kind](exchange.response))
    return "terminal_sent"


async def emit_failure(exchange: Exchange) -> str:
    """Close what is open and send `response.failed`."""
    error = ResponseError(*exchange.failure)
    exchange.output.end("output_cut")
    await exchange.speak()
    ending = Ending(status="failed", output=exchange.output.items, error=error)
    await exchange.outbox.deliver(Failed(to_response(exchange.head, ending)))
    return "failure_sent"
