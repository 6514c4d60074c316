"""What is served, how it is, and how operators change it over HTTP."""

import json

import pytest

from engine.errors import LoadError
from engine.scripted import ScriptedEngine
from handlers.app import create_app
from handlers.registry import Registry
from handlers.services import Services
from handlers.settings import Settings
from machines.binding import OPERATOR_REFUSALS
from storage.store import open_store
from tests.asgi import Call, Client, running
from tests.doubles import NOW, counting_ids, to_services
from tests.test_registry import Clock, Loadable

MODEL = "org/model"
PATH = f"/v1/models/{MODEL}"
PAGE = "http://app.example"  # whose pages may ask the models, but not change them


def condition(state: str = "ready", waiting: int = 0, running: int = 0, **more: object) -> dict:
    """Make what is told of a model whose engine is well and idle."""
    engine = {"healthy": True, "step_seconds": 0.0}
    places = {"waiting": waiting, "running": running, "capacity": 1, "queue_limit": 1}
    return {"state": state, **places, "engine": engine, **more}


class World:
    """An app with one model that is ready, and the engines it was asked to make."""

    def __init__(self, tokens: dict[str, str] | None = None) -> None:
        self.clock = Clock()
        self.made: list[Loadable] = []
        self.models = Registry(self._make, queue_limit=1, clock=self.clock)
        self.engine = Loadable(waits=True)
        self.models.register(MODEL, self.engine)
        self.peer = "127.0.0.1"
        self.tokens = tokens or {}
        self.client: Client

    def _make(self, source: str) -> Loadable:
        if source == "/nowhere":
            raise LoadError("'/nowhere' does not exist; give a model folder.")
        self.made.append(Loadable(waits=True))
        return self.made[-1]

    def services(self) -> Services:
        settings = Settings(max_body_bytes=1000, cors=(PAGE,), tokens=self.tokens)
        return Services(settings=settings, models=self.models, store=None, clock=self.clock, new_id=counting_ids())

    async def finish(self, engine: Loadable, error: Exception | None = None) -> None:
        engine.finish(error)
        await self.models.settled()

    async def put(self, body: object, path: str = PATH, **headers: str) -> Call:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.request("PUT", path, sent, **headers)

    async def get(self, path: str) -> Call:
        return await self.client.request("GET", path)

    async def delete(self, path: str = PATH, **headers: str) -> Call:
        return await self.client.request("DELETE", path, **headers)

    async def health(self) -> tuple[int, str, dict]:
        reply = await self.get("/health")
        return reply.status_code, reply.json["status"], reply.json["models"]


def from_peer(app, world):
    """Let every request come from the address that `world` names."""

    async def call(scope, receive, send):
        if scope["type"] == "http":
            scope["client"] = (world.peer, 1) if world.peer else None
        await app(scope, receive, send)

    return call


@pytest.fixture
async def loading():
    world = World()
    async with running(from_peer(create_app(world.services()), world)) as world.client:
        yield world
        for engine in (world.engine, *world.made):
            engine.may_load.set()


@pytest.fixture
async def world(loading):
    await loading.finish(loading.engine)
    return loading


async def _client_remote(world):
    world.peer = "192.0.2.7"
    return await world.put({"source": "x"})


async def _client_forwarded(world):
    return await world.put({"source": "x"}, **{"X-Forwarded-For": "127.0.0.1"})


async def _origin_foreign(world):
    return await world.put({"source": "x"}, origin=PAGE)


async def _name_invalid(world):
    return await world.put({"source": "x"}, "/v1/models/")


async def _body_too_large(world):
    return await world.put(b" " * 1001)


async def _json_invalid(world):
    return await world.put(b'{"source": ')


async def _body_not_object(world):
    return await world.put(["x"])


async def _source_missing(world):
    return await world.put({})


async def _source_mistyped(world):
    return await world.put({"source": 5})


async def _source_invalid(world):
    return await world.put({"source": "/nowhere"})


async def _model_unknown(world):
    return await world.delete("/v1/models/else")


async def _load_under_way(world):
    await world.put({"source": "x"})
    world.clock.now += 3.04
    return await world.put({"source": "y"})


PROVOKE = {
    name.removeprefix("_"): function for name, function in list(globals().items()) if name[1:] in OPERATOR_REFUSALS
}  # fmt: skip
SAYS = {
    "client_remote": "Without INTERLOCK_TOKEN, models are changed only from the server's own machine.",
    "client_forwarded": "Without INTERLOCK_TOKEN, models are not changed through a proxy, and x-forwarded-for says "
    "there is one.",
    "origin_foreign": "Without INTERLOCK_TOKEN, models are not changed for a page of 'http://app.example'.",
    "name_invalid": "A model's id is 1 to 256 printable characters, with no space or slash at either end.",
    "body_too_large": "Request body too large: the limit is 1000 bytes.",
    "json_invalid": "Invalid JSON in request body",
    "body_not_object": "The request body must be a JSON object.",
    "source_missing": "Missing required field: source",
    "source_mistyped": "`source` must be a string: a model folder, or a Hub name such as 'owner/model'.",
    "source_invalid": "Invalid value for `source`: '/nowhere' does not exist; give a model folder.",
    "model_unknown": "Model 'else' is not loaded; the models are: org/model.",
    "load_under_way": "A load for model 'org/model' is already under way, for 3.0 s now; wait for it, or DELETE the "
    "model to give it up.",
}


@pytest.mark.parametrize("event", OPERATOR_REFUSALS)
async def test_an_operator_is_refused(event):
    row = OPERATOR_REFUSALS[event]
    world = World()
    async with running(from_peer(create_app(world.services()), world)) as world.client:
        await world.finish(world.engine)

        reply = await PROVOKE[event](world)
        for engine in world.made:
            engine.may_load.set()

    assert reply.status_code == row.status
    assert reply.json == {"error": {"message": SAYS[event], "type": row.type, "param": row.param, "code": row.code}}
    assert reply.headers.get("Retry-After") == (str(row.retry_after) if row.retry_after else None)
    assert len(world.made) == (event == "load_under_way")


async def test_a_model_is_loaded_in_the_background_and_swapped_when_it_is_ready(world):
    old = world.models[MODEL]

    reply = await world.put({"source": "x"})

    loading = {"state": "loading", "seconds": 0.0}
    assert reply.status_code == 202
    assert reply.json == {
        "id": MODEL, "object": "model", "created": NOW, "owned_by": "interlock",
        **condition(load=loading),
    }  # fmt: skip
    assert world.models[MODEL] is old
    world.clock.now += 2.5
    assert (await world.get(PATH)).json["load"] == {"state": "loading", "seconds": 2.5}

    await world.finish(world.made[0])

    assert world.models[MODEL].engine is world.made[0]
    assert world.engine.closes == 1
    assert await world.health() == (200, "ok", {MODEL: condition()})


async def test_a_new_model_is_there_at_once_and_loading(world):
    reply = await world.put({"source": "x", "unknown": 1}, "/v1/models/new")
    assert (reply.status_code, reply.json["state"]) == (202, "loading")
    assert (await world.health())[:2] == (200, "loading")

    await world.finish(world.made[0])

    assert (await world.get("/v1/models/new")).json["state"] == "ready"
    assert [model["id"] for model in (await world.get("/v1/models")).json["data"]] == [MODEL, "new"]


async def test_a_failed_load_leaves_the_old_model_serving_and_health_says_why(world):
    await world.put({"source": "x"})

    await world.finish(world.made[0], LoadError("'x' has no weights."))

    failed = {"state": "broken", "reason": "'x' has no weights."}
    assert await world.health() == (200, "degraded", {MODEL: condition(load=failed)})
    assert world.models[MODEL].engine is world.engine
    assert (await world.put({"source": "y"})).status_code == 202
    await world.finish(world.made[1])
    assert await world.health() == (200, "ok", {MODEL: condition()})


async def test_a_model_is_removed_with_what_was_loading_for_it(world):
    await world.put({"source": "x"})

    reply = await world.delete()

    assert (reply.status_code, reply.json) == (200, {"id": MODEL, "object": "model", "deleted": True})
    assert (await world.get(PATH)).status_code == 404
    await world.finish(world.made[0])
    assert (await world.delete()).json["error"]["message"] == f"Model {MODEL!r} is not loaded; the models are: none."
    assert (world.engine.closes, world.made[0].closes) == (1, 1)
    assert (await world.health())[:2] == (503, "error")


async def test_two_loads_for_one_name_never_run_together_but_those_of_two_names_do(world):
    assert (await world.put({"source": "x"}, "/v1/models/new")).status_code == 202
    assert (await world.put({"source": "y"}, "/v1/models/new")).status_code == 409
    assert (await world.put({"source": "y"})).status_code == 202
    world.made[0].finish()
    await world.models["new"].load()

    assert (await world.put({"source": "y"}, "/v1/models/new")).status_code == 202


async def test_a_model_is_given_by_its_id_or_is_unknown(world):
    found, unknown = await world.get(PATH), await world.get("/v1/models/org")

    assert found.json == {
        "id": MODEL, "object": "model", "created": NOW, "owned_by": "interlock",
        **condition(),
    }  # fmt: skip
    assert (unknown.status_code, unknown.json["error"]["code"]) == (404, "model_not_found")


async def test_other_methods_are_not_for_a_model(world):
    reply = await world.client.request("POST", PATH)

    assert (reply.status_code, reply.headers["Allow"]) == (405, "DELETE, GET, PUT, OPTIONS")


async def test_health_is_503_only_while_no_model_can_serve(loading):
    reply = await loading.get("/health")
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "2")
    loading.clock.now += 1.5
    assert await loading.health() == (503, "loading", {MODEL: condition("loading", seconds=1.5)})

    await loading.finish(loading.engine, LoadError("No."))

    reply = await loading.get("/health")
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "10")
    idle = {"healthy": False, "step_seconds": 0.0}
    assert reply.json["status"] == "error"
    assert reply.json["models"] == {MODEL: condition("broken", reason="No.", engine=idle)}


async def test_health_tells_of_a_database_file_that_is_gone(tmp_path):
    file = tmp_path / "responses.duckdb"
    services = to_services(ScriptedEngine(), open_store(str(file)))
    async with running(create_app(services)) as client:
        before = await client.request("GET", "/health")
        file.unlink()
        after = await client.request("GET", "/health")

    assert (before.json["status"], before.json["database_lost"]) == ("ok", False)
    assert (after.status_code, after.json["status"], after.json["database_lost"]) == (200, "degraded", True)


async def test_health_is_degraded_while_a_queue_is_at_its_cap(world):
    slots = world.models[MODEL].slots
    slots.take()
    waiter = slots.take()

    assert await world.health() == (200, "degraded", {MODEL: condition(waiting=1, running=1)})
    waiter.leave()
    assert (await world.health())[1] == "ok"


async def test_health_is_degraded_while_one_of_two_models_is_broken(world):
    await world.put({"source": "x"}, "/v1/models/new")
    await world.finish(world.made[0])
    world.engine.healthy = False

    status, word, conditions = await world.health()

    assert (status, word) == (200, "degraded")
    assert conditions[MODEL]["reason"] == "Its engine died or stood still; it is loaded again."


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "a.localhost"])
async def test_without_a_token_the_servers_own_machine_may_change_models(world, peer, host):
    world.peer = peer

    assert (await world.delete(host=host, origin="http://localhost:3000")).status_code == 200


@pytest.mark.parametrize("peer", ["192.0.2.7", "::ffff:192.0.2.7", "::", "0.0.0.0", "", "/run/proxy.sock"])  # noqa: S104
async def test_without_a_token_no_other_machine_may(world, peer):
    world.peer = peer

    assert (await world.delete()).status_code == 403
    assert MODEL in world.models


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil-localhost",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "192.0.2.7",
        "localhost,e",
    ],
)
async def test_without_a_token_no_other_host_is_answered(world, host):
    assert (await world.delete(host=host)).status_code == 403
    assert MODEL in world.models


@pytest.mark.parametrize("origin", ["null", "", "https://evil.example", "http://localhost.evil.example", "http://["])
async def test_without_a_token_no_other_page_may(world, origin):
    assert (await world.delete(origin=origin)).status_code == 403


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-Host", "X-Real-IP", "CF-Connecting-IP"])
async def test_without_a_token_no_proxy_may(world, header):
    assert (await world.delete(**{header: "127.0.0.1"})).status_code == 403


async def test_with_tokens_whoever_sends_one_may_change_models_from_anywhere():
    world = World({"ci": "s3cret"})
    world.peer = "192.0.2.7"
    async with running(from_peer(create_app(world.services()), world)) as world.client:
        await world.finish(world.engine)

        refused = await world.delete(host="models.example")
        reply = await world.delete(host="models.example", authorization="Bearer s3cret", via="1.1 proxy")

    assert (refused.status_code, reply.status_code) == (401, 200)


@pytest.mark.parametrize("name", ["", " x", "x/", "/x", "x\n", "x\u200b", "x" * 257])
async def test_a_name_that_could_not_be_asked_for_is_refused(world, name):
    reply = await world.put({"source": "x"}, f"/v1/models/{name}")

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "id")


@pytest.mark.parametrize("source", [None, "", [], {}, True])
async def test_a_source_that_is_no_string_is_refused_by_its_name(world, source):
    reply = await world.put({"source": source})

    assert (reply.status_code, reply.json["error"]["param"]) == (400, "source")
    assert world.made == []


async def test_deep_json_is_refused_not_crashed_on(world):
    assert (await world.put(b"[" * 999)).status_code == 400


@pytest.mark.parametrize(
    "source", ["/nowhere/at/all", "a\0b", "a/" + "b" * 300, "~nobody-here/x", "~a\0b/x", "x" * 5000, "a/b/c"]
)
def test_no_source_can_crash_the_maker_of_engines(source):
    from handlers.serving import make_engine  # noqa: PLC0415  mlx is imported after a fast BLAS

    with pytest.raises(LoadError):
        make_engine(source)


def test_names_of_one_source_share_one_model():
    from handlers.serving import to_registry  # noqa: PLC0415  mlx is imported after a fast BLAS

    models = to_registry(Settings(models={"a": "org/x", "b": "org/y", "c": "org/x"}, queue_limit=3))

    assert models["a"] is models["c"]
    assert models["a"] is not models["b"]
    assert models["a"].slots.limit == 3


def test_a_model_has_the_limits_of_the_settings():
    from handlers.serving import to_registry  # noqa: PLC0415  mlx is imported after a fast BLAS

    settings = Settings(models={"a": "org/x"}, capacity=3, cache_bytes=5, prefill_step=7, stall_seconds=9)

    engine = to_registry(settings)["a"].engine

    assert (engine.capacity, engine._limits.cache_bytes, engine._limits.prefill_step_size) == (3, 5, 7)
    assert engine._stall_seconds == 9
