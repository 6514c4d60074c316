"""One app that a test provokes into refusing."""

from typing import Any

import msgspec

from engine.scripted import ScriptedEngine
from handlers.services import Services
from tests.asgi import Client
from tests.doubles import NOW, say

STRAY = {"previous_response_id": "resp_stray", "input": "And then?"}


class World:
    """One app, to be provoked."""

    def __init__(self, client: Client, services: Services, engine: ScriptedEngine) -> None:
        self.client = client
        self.services = services
        self.engine = engine

    async def post(self, **body: Any) -> Any:
        return await self.client.post(**body)

    async def send(self, body: bytes, **headers: str) -> Any:
        return await self.client.request("POST", "/v1/responses", body, **headers)

    async def continued(self, **changes: Any) -> Any:
        """Continue a stored response whose row was changed."""
        self.engine.script = say("Yes.")
        first = await self.post(input="Hello")
        assert await self.services.writes.settled(first.json["id"], 10)
        rows = (await self.services.store.chain(first.json["id"], NOW)).rows
        changed = msgspec.structs.replace(rows[0], id="resp_changed", **changes)
        await self.services.store.put(changed)
        self.engine.decodes.clear()
        return await self.post(input="And?", previous_response_id="resp_changed")
