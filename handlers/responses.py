"""The Falcon resource of /v1/responses."""

from falcon.asgi import Request, Response

from handlers.exchange import Exchange, Incoming
from handlers.replies import answer
from handlers.services import Services
from handlers.steps import start
from handlers.watch import KEY


class Responses:
    """POST /v1/responses: one request, one exchange."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_post(self, req: Request, resp: Response) -> None:
        client = req.scope[KEY]

        async def read(limit: int) -> bytes:
            body: bytes = await req.stream.read(limit)
            client.listen()
            return body

        incoming = Incoming(method=req.method, path=req.path, declared_length=req.content_length, read=read)
        exchange = Exchange(self._services, incoming)
        start(exchange)
        await answer(exchange, client, resp)
