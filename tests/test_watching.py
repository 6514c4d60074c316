"""The server looks after its engines by itself, and lets as many requests decode as the engine does."""

from engine.scripted import Pause, ScriptedEngine
from handlers.app import create_app
from handlers.settings import Settings
from tests.asgi import running
from tests.doubles import say, to_services, watch


async def test_an_engine_that_died_is_loaded_again_by_the_server(engine, store):
    async with running(create_app(to_services(engine, store, Settings(watch_seconds=0.001)))) as client:
        engine.script = say("Yes.")
        loaded = watch(engine, "load")
        engine.healthy = False

        await loaded.wait()
        await client.app._services.models.settled()

        assert (await client.post(input="Hello")).status_code == 200


async def test_as_many_requests_decode_together_as_the_engine_has_room_for(store):
    engine = ScriptedEngine(capacity=2)
    pauses = [Pause() for _ in range(3)]
    engine.scripts.extend([pause, *say("Yes.")] for pause in pauses)
    async with running(create_app(to_services(engine, store))) as client:
        calls = [client.start(input="Hello") for _ in pauses]
        for pause in pauses[:2]:
            await pause.reached.wait()
        assert len(engine.decodes) == 2

        pauses[1].resume.set()
        await calls[1].reply()
        await pauses[2].reached.wait()

        assert len(engine.decodes) == 3
        for pause in pauses:
            pause.resume.set()
        assert [(await call.reply()).status_code for call in calls] == [200] * 3
