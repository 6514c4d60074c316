"""BINDING: the model a request names."""

from handlers.exchange import Exchange
from handlers.mapping.to_response import Head

REFUSED = {"loading": "model_loading", "broken": "model_broken"}


async def bind(exchange: Exchange) -> str:
    """Find the model by name and start the response's head."""
    services, request = exchange.services, exchange.request
    exchange.facts.update(model=request.model, models=", ".join(services.models))
    binding = services.models.get(request.model or "")
    if binding is None:
        return "model_unknown"
    if services.is_stopping:
        return "server_stopping"
    if binding.readiness != "ready":
        return REFUSED[binding.readiness]
    exchange.binding = binding
    exchange.head = Head(
        id=services.new_id("resp"),
        created_at=int(services.clock()),
        instructions=request.instructions,
        request=request,
        store=request.store is not False and services.store is not None,
    )
    exchange.facts["response_id"] = exchange.head.id
    return "model_bound"
