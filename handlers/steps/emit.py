"""EMITTING and FAILING: the one event that ends a response, sent and seen to leave."""

from handlers.exchange import Exchange
from handlers.mapping.to_response import Ending, to_response
from handlers.wire.events import TERMINAL, Failed, Incomplete
from handlers.wire.response import ResponseError


async def emit_terminal(exchange: Exchange) -> str:
    """Send the terminal event of a response that ended by itself or met its limit."""
    await exchange.deliver(TERMINAL[exchange.terminal](exchange.response))
    return "terminal_sent"


async def emit_failure(exchange: Exchange) -> str:
    """Close what is open and send the terminal event of a response that failed or was cancelled."""
    failure, message = exchange.failure
    exchange.output.end("output_cut")
    await exchange.speak()
    is_failed = failure.status == "failed"
    ending = Ending(
        status="failed" if is_failed else "cancelled",
        output=exchange.output.items,
        usage=exchange.usage,
        error=ResponseError(failure.code, message) if is_failed else None,
    )
    # no event says `cancelled`; clients try again what failed, so a cancelled response ends as an incomplete one
    terminal = Failed if is_failed else Incomplete
    await exchange.deliver(terminal(to_response(exchange.head, ending)))
    return "failure_sent"
