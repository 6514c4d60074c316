"""DISPATCHING: decoding, and every event of the output items."""

from engine.errors import DecodeError
from engine.pieces import Finish, Text
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
    exchange.finish = await _follow(exchange)
    closing, event = ENDINGS[exchange.finish.reason]
    for said in exchange.output.end(closing):
        await exchange.say(said)
    return event


async def _follow(exchange: Exchange) -> Finish:
    if exchange.decoding is not None:
        async for piece in exchange.decoding:
            match piece:
                case Text(text):
                    for said in exchange.output.grow(text):
                        await exchange.say(said)
                case Finish():
                    return piece
    msg = "the engine ended without saying why"
    raise DecodeError(msg)
