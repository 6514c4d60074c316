"""EMITTING and FAILING: the one event that ends a response, sent and seen to leave."""

from handlers.exchange import Exchange
from handlers.mapping.to_response import Ending, to_response
from handlers.wire.events import TERMINAL, Failed
from handlers.wire.response import ResponseError


async def emit_terminal(exchange: Exchange) -> str:
    """Send the terminal event of a response that ended by itself or met its limit."""
    await exchange.outbox.deliver(TERMINAL[exchange.terminal](exchange.response))
    return "terminal_sent"


async def emit_failure(exchange: Exchange) -> str:
    """Close what is open and send `response.failed`."""
    error = ResponseError(*exchange.failure)
    exchange.output.end("output_cut")
    await exchange.speak()
    ending = Ending(status="failed", output=exchange.output.items, error=error)
    await exchange.outbox.deliver(Failed(to_response(exchange.head, ending)))
    return "failure_sent"
