"""RESOLVING and AWAITING_WRITE: the stored responses a request continues."""

import logging

import msgspec

from handlers.exchange import Exchange
from handlers.lookup import look_up
from handlers.mapping.to_messages import to_messages
from handlers.mapping.to_row import Origin, to_turns
from handlers.mapping.to_struct import FieldError
from storage.rows import Chain, Cyclic, Lookup, Missing, ResponseRow, TooDeep

log = logging.getLogger("interlock.exchange")


async def resolve(exchange: Exchange) -> str:
    """Fetch the chain that `previous_response_id` names and verify that this model made it."""
    services, previous = exchange.services, exchange.request.previous_response_id
    if not previous:
        return "chain_absent"
    exchange.facts["previous_response_id"] = previous
    local = exchange.incoming.local
    if local is not None and previous in local:
        return _judge(exchange, Chain(local[previous]))
    return "store_absent" if services.store is None and local is None else await _resolve_stored(exchange, previous)


async def _resolve_stored(exchange: Exchange, previous: str) -> str:
    services = exchange.services
    # asked before the store is read, or a write that lands meanwhile would look unknown
    writes = services.writes
    if exchange.probed is None and (writes.is_pending(previous) or writes.retry(previous)):
        return "write_pending"
    if is_under_way(services.jobs.get(previous)):
        return "job_under_way"
    exchange.facts["wedged"] = writes.is_wedged(previous)
    found = exchange.probed or await probe(exchange)
    if not services.models.is_current(exchange.request.model or "", exchange.binding):
        return "binding_changed"
    return _judge(exchange, found)


def is_under_way(made: Exchange | None) -> bool:
    """Tell whether a background response has not come to its end."""
    return made is not None and made.job is not None and not made.job.is_final


def _judge(exchange: Exchange, found: Lookup) -> str:
    match found:
        case Chain(rows):
            exchange.chain = rows
            return _read(exchange)
        case TooDeep(depth):
            exchange.facts.update(depth=depth, limit=exchange.services.settings.max_chain_depth)
            return "chain_too_deep"
        case Cyclic():
            return "chain_cyclic"
    return "write_wedged" if exchange.facts["wedged"] else "chain_unknown"


async def await_write(exchange: Exchange) -> str:
    """Wait for the write that will settle whether the chain is there, and look once more if it takes too long."""
    services, previous = exchange.services, exchange.facts["previous_response_id"]
    waited_ms = services.settings.write_wait_ms
    exchange.facts["waited_ms"] = waited_ms
    if services.store is None or await services.writes.settled(previous, waited_ms / 1000):
        return "write_settled"
    found = await probe(exchange)
    if not isinstance(found, Missing):
        log.warning("%s: the row of %s was found though its write has not ended", exchange.id, previous)
        exchange.probed = found
        return "write_settled"
    earliest = services.writes.earliest(previous)
    return "chain_expired" if earliest is not None and services.clock() >= earliest else "write_unsettled"


async def probe(exchange: Exchange) -> Lookup:
    """Look the chain up."""
    services = exchange.services
    return await look_up(services, exchange.facts["previous_response_id"], services.settings.max_chain_depth)


def _read(exchange: Exchange) -> str:
    try:
        # turn by turn: folded together, they would not read as they did when they were said
        exchange.history = [message for turn in to_turns(exchange.chain) for message in to_messages(turn, "history")]
    except (msgspec.MsgspecError, FieldError, KeyError) as error:
        log.warning("%s: a stored row of %r cannot be read: %s", exchange.id, exchange.chain[-1].id, error)
        return "chain_unreadable"
    last = exchange.chain[-1]
    if exchange.request.instructions is None:
        exchange.head = msgspec.structs.replace(exchange.head, instructions=last.instructions)
    return _verify(exchange, last)


def _verify(exchange: Exchange, last: ResponseRow) -> str:
    try:
        config = msgspec.json.decode(last.config_json)
    except msgspec.MsgspecError:
        return "identity_unreadable"
    try:
        origin = msgspec.convert(config, Origin)
    except msgspec.ValidationError:
        return "identity_absent"
    # instances are counted anew by every process, so they compare only within one
    exchange.facts["made_by"] = last.model
    same_boot = origin.server_boot_id == exchange.services.boot_id
    if not same_boot and last.model != exchange.request.model:
        return "model_renamed"
    if same_boot and origin.model_instance_id != exchange.binding.instance:
        return "instance_changed"
    return "chain_resolved"
