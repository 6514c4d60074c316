"""DISPATCHING: decoding, and every event of the output items."""

from engine.errors import DecodeError
from engine.pieces import Decoding, Finish
from handlers.exchange import Exchange
from handlers.mapping.to_response import Ending, to_response
from handlers.mapping.to_sampling import to_sampling
from handlers.wire.events import Created, InProgress

ENDINGS = {"stop": ("output_ended", "decode_finished"), "length": ("output_cut", "token_limit_reached")}


async def dispatch(exchange: Exchange) -> str:
    """Decode, telling the client of each piece as it comes."""
    opening = to_response(exchange.head, Ending())
    await exchange.say(Created(opening))
    await exchange.say(InProgress(opening))
    engine = exchange.binding.engine
    sampling = to_sampling(exchange.request, engine.context_length - len(exchange.prompt))
    exchange.decoding = engine.decode(exchange.prompt, sampling)
    exchange.finish = await _follow(exchange, exchange.decoding)
    closing, event = ENDINGS[exchange.finish.reason]
    for said in exchange.output.end(closing):
        await exchange.say(said)
    return event


async def _follow(exchange: Exchange, decoding: Decoding) -> Finish:
    async for piece in decoding:
        if isinstance(piece, Finish):
            return piece
        for said in exchange.output.grow(piece.text):
            await exchange.say(said)
    msg = "the engine ended without saying why"
    raise DecodeError(msg)
