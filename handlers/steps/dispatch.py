"""DISPATCHING: decoding, and every event of the output items."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from engine.pieces import Decoding, Finish, Reasoning, Text, ToolCall
from handlers.exchange import Exchange
from handlers.heartbeat import beating
from handlers.mapping.to_sampling import to_sampling
from handlers.mapping.to_tools import to_input


async def dispatch(exchange: Exchange) -> str:
    """Decode, telling the client of each piece as it comes."""
    engine = exchange.binding.engine
    sampling = to_sampling(exchange.request, engine.context_length - len(exchange.prompt))
    if exchange.is_prewarm:
        sampling = replace(sampling, max_tokens=1)
    tools, owner = exchange.toolbox.tools or None, exchange.incoming.owner
    exchange.decoding = engine.decode(exchange.prompt, sampling, tools, grammar=exchange.grammar, owner=owner)
    calls: list[ToolCall] = []
    if exchange.job is not None:
        await exchange.job.take()
    async with beating(exchange):
        # the headers tell what was cached, so the first frame waits for it, though no longer than for a heartbeat
        exchange.measured.cached_tokens = await exchange.decoding.begun()
        await exchange.open()
        follow = _take_up if exchange.is_prewarm else _follow
        exchange.finish = await follow(exchange, exchange.decoding, calls)
    if exchange.finish is None:
        return "stream_exhausted"
    exchange.output.measure(exchange.finish.completion_tokens)
    if exchange.is_prewarm:
        return "decode_finished"
    return await ENDINGS[exchange.finish.reason](exchange, calls)


async def _follow(exchange: Exchange, decoding: Decoding, calls: list[ToolCall]) -> Finish | None:
    async for piece in decoding:
        match piece:
            case Finish():
                return piece
            case ToolCall():
                calls.append(piece)
            case Reasoning(text):
                exchange.output.think(text)
            case Text():
                exchange.output.write(piece)
        await exchange.speak()
    return None


async def _take_up(_: Exchange, decoding: Decoding, __: list[ToolCall]) -> Finish | None:
    """Read to the end, and tell nobody: the model has then taken the prompt up."""
    pieces = [piece async for piece in decoding]
    finish = next((piece for piece in pieces if isinstance(piece, Finish)), None)
    return finish and replace(finish, completion_tokens=0, reasoning_tokens=0)


async def _commit(exchange: Exchange, calls: list[ToolCall]) -> str:
    only_one = exchange.request.parallel_tool_calls is False
    for call in calls[:1] if only_one else calls:
        tool = exchange.toolbox.restore(call.name)
        exchange.output.call(call.call_id, tool, to_input(call.arguments) if tool.is_custom else call.arguments)
        await exchange.speak()
    exchange.output.end("output_ended")
    await exchange.speak()
    return "decode_finished"


async def _cut(exchange: Exchange, _: list[ToolCall]) -> str:
    exchange.output.end("output_cut")
    await exchange.speak()
    return "token_limit_reached"


async def _give_up(_: Exchange, __: list[ToolCall]) -> str:
    return "finish_error"


# calls are shown once their turn is committed, so one that was cut or failed shows none
ENDINGS: dict[str, Callable[[Exchange, list[ToolCall]], Awaitable[str]]] = {
    "stop": _commit,
    "length": _cut,
    "error": _give_up,
}
