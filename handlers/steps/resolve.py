"""RESOLVING and AWAITING_WRITE: the stored responses a request continues."""

import logging

import msgspec

from handlers.exchange import Exchange
from handlers.mapping.to_messages import to_messages
from handlers.mapping.to_row import Origin, to_history
from handlers.mapping.to_struct import FieldError
from storage.rows import ResponseRow

log = logging.getLogger("interlock.exchange")


async def resolve(exchange: Exchange) -> str:
    """Fetch the chain that `previous_response_id` names and verify that this model made it."""
    services, previous = exchange.services, exchange.request.previous_response_id
    if not previous:
        return "chain_absent"
    exchange.facts["previous_response_id"] = previous
    if services.store is None:
        return "store_absent"
    if services.pending.is_pending(previous):
        return "write_pending"
    exchange.chain = await services.store.chain(previous, int(services.clock()))
    return _read(exchange) if exchange.chain else "chain_unknown"


async def await_write(exchange: Exchange) -> str:
    """Wait for the write that will settle whether the chain is there."""
    services = exchange.services
    waited_ms = services.settings.write_wait_ms
    exchange.facts["waited_ms"] = waited_ms
    settled = await services.pending.wait(exchange.facts["previous_response_id"], waited_ms / 1000)
    return "write_settled" if settled else "write_unsettled"


def _read(exchange: Exchange) -> str:
    try:
        exchange.history = to_messages(to_history(exchange.chain), "history")
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
    if not same_boot and last.model != exchange.binding.name:
        return "model_renamed"
    if same_boot and origin.model_instance_id != exchange.binding.instance:
        return "instance_changed"
    return "chain_resolved"
