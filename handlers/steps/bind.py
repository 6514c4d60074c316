"""BINDING: the model a request names."""

from handlers.exchange import Exchange
from handlers.mapping.to_response import Head
from machines.binding import State


async def bind(exchange: Exchange) -> str:
    """Find the model by name and start the response's head."""
    services, request = exchange.services, exchange.request
    exchange.facts.update(model=request.model, models=", ".join(services.models) or "none")
    name = request.model or ""
    binding = services.models.get(name)
    if binding is None:
        return "model_unknown"
    exchange.model = name
    exchange.lease = services.models.lease(name)
    if exchange.lease is None:
        return "model_loading" if binding.state is State.LOADING else "model_broken"
    exchange.binding = binding
    exchange.head = Head(
        id=services.new_id("resp"),
        created_at=int(services.clock()),
        instructions=request.instructions,
        request=request,
        store=request.store is not False and services.store is not None,
    )
    exchange.facts["response_id"] = exchange.known_as = exchange.head.id
    return "model_bound"
