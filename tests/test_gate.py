"""Who may ask: tokens, the Host and the Origin, before a route is looked for and before a body is read."""

import pytest

from handlers import gate
from handlers.app import create_app
from handlers.settings import Settings
from tests.asgi import running
from tests.doubles import MODEL, say, to_services

TOKEN = "s3cret-täken"  # noqa: S105 - for this test alone
BEARER = f"Bearer {TOKEN}"
TOKENS = {"ci": "other", "anna": TOKEN}
ROUTES = [
    ("POST", "/v1/responses"),
    ("GET", "/v1/models"),
    ("GET", f"/v1/models/{MODEL}"),
    ("PUT", "/v1/models/x"),
    ("DELETE", f"/v1/models/{MODEL}"),
    ("GET", "/nowhere"),
    ("PATCH", "/v1/models"),
    ("OPTIONS", "/v1/responses"),
]
PAGE = "https://app.example"


@pytest.fixture
def serve(engine, store):
    engine.script = say("Yes.")
    return lambda **settings: running(create_app(to_services(engine, store, Settings(**settings))))


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_with_tokens_every_route_wants_one(serve, method, path):
    async with serve(tokens=TOKENS) as client:
        absent = await client.request(method, path)
        wrong = await client.request(method, path, authorization="Bearer guess")
        right = await client.request(method, path, authorization=BEARER)

    assert (absent.status_code, wrong.status_code) == (401, 401)
    assert absent.headers["Www-Authenticate"] == 'Bearer realm="interlock"'
    assert wrong.headers["Www-Authenticate"] == 'Bearer realm="interlock", error="invalid_token"'
    assert {reply.json["error"]["type"] for reply in (absent, wrong)} == {"authentication_error"}
    assert right.status_code != 401


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (BEARER, 200), (f"bearer{BEARER[6:]}", 200), ("Bearer other", 200), (None, 401), ("", 401), ("Bearer", 401),
        ("Bearer ", 401), (f"Basic{BEARER[6:]}", 401), (BEARER[7:], 401), (BEARER[:-1], 401), (f"{BEARER}x", 401),
        (f"{BEARER} ", 401), (BEARER.upper(), 401), ("Bearer anna", 401), (f"Bearer anna={TOKEN}", 401),
    ],
)  # fmt: skip
async def test_a_token_is_taken_as_a_whole(serve, header, status):
    async with serve(tokens=TOKENS) as client:
        reply = await client.request("GET", "/v1/models", **({} if header is None else {"authorization": header}))

    assert reply.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": TOKEN}, 200),
        ({"x-api-key": TOKEN, "authorization": "Bearer guess"}, 200),
        ({"x-api-key": "guess", "authorization": BEARER}, 401),
        ({"x-api-key": "", "authorization": BEARER}, 401),
        ({"x-api-key": BEARER}, 401),
    ],
)
async def test_an_api_key_decides_where_it_is_given(serve, headers, status):
    async with serve(tokens=TOKENS) as client:
        assert (await client.request("GET", "/v1/models", **headers)).status_code == status


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
@pytest.mark.parametrize("wrong_first", [False, True])
async def test_two_tokens_are_none(serve, name, wrong_first):
    right, wrong = (TOKEN, "guess") if name == b"x-api-key" else (BEARER, "Bearer guess")

    async def twice(scope, receive, send):
        given = [(name, value.encode()) for value in ((wrong, right) if wrong_first else (right, wrong))]
        await app(
            {**scope, "headers": [*scope["headers"], *given]} if scope["type"] == "http" else scope, receive, send
        )

    async with serve(tokens=TOKENS) as client:
        app, client.app = client.app, twice

        assert (await client.request("GET", "/v1/models")).status_code == 401


async def test_a_body_that_does_not_come_delays_no_refusal_for_long(serve, monkeypatch):
    monkeypatch.setattr(gate, "PATIENCE", 0.01)
    async with serve(tokens=TOKENS) as client:
        call = client.start(input="Hello")
        call.withhold_body()

        await call.reply()

    assert call.status_code == 401


async def test_the_log_gives_the_name_of_a_token_and_never_the_token(serve, caplog):
    caplog.set_level("DEBUG")
    async with serve(tokens=TOKENS) as client:
        await client.request("POST", "/v1/responses", b'{"model": "gpt"}', authorization=BEARER)
        await client.request("GET", "/nowhere", authorization="Bearer other")
        await client.request("GET", "/v1/models", authorization="Bearer guess")

    assert "caller='anna'" in caplog.text
    assert "caller='ci': refused by route_unknown" in caplog.text
    assert TOKEN not in caplog.text
    assert "guess" not in caplog.text


async def test_the_caches_of_a_token_are_its_own(serve, engine):
    async with serve(tokens=TOKENS) as client:
        for headers in ({"authorization": BEARER}, {"x-api-key": TOKEN}, {"x-api-key": "other"}):
            body = b'{"model": "scripted", "input": "Hello"}'
            await client.request("POST", "/v1/responses", body, **headers)

    assert engine.owners == ["anna", "anna", "ci"]


async def test_without_tokens_clients_are_told_apart_by_what_they_send(serve, engine):
    async with serve() as client:
        for headers in ({}, {"authorization": "Bearer a"}, {"x-api-key": "a"}):
            body = b'{"model": "scripted", "input": "Hello"}'
            await client.request("POST", "/v1/responses", body, **headers)

    assert len(set(engine.owners)) == 3
    assert "a" not in engine.owners


async def test_who_may_not_ask_leaves_no_trace_on_the_disk(serve, store, monkeypatch):
    kept = []
    monkeypatch.setattr(store, "record", kept.append)
    async with serve(tokens=TOKENS) as client:
        await client.request("GET", "/nowhere")
        await client.request("GET", "/nowhere", authorization=BEARER)

    assert [trace.event for trace in kept] == ["route_unknown"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "a.localhost"]
)
async def test_without_tokens_this_machine_is_answered_by_its_own_names(serve, host):
    async with serve() as client:
        assert (await client.request("GET", "/v1/models", host=host)).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "192.0.2.7"],
)
@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/health")])
async def test_without_tokens_no_other_name_is_answered(serve, engine, method, path, host):
    async with serve() as client:
        reply = await client.request(method, path, b'{"model": "scripted", "input": "Hello"}', host=host)

    assert (reply.status_code, reply.json["error"]["code"]) == (403, "host_foreign")
    assert engine.decodes == []


@pytest.mark.parametrize("origin", ["null", "", "https://evil.example", "http://localhost.evil.example", "http://["])
async def test_without_tokens_no_foreign_page_is_answered(serve, engine, origin):
    async with serve() as client:
        reply = await client.request(
            "POST", "/v1/responses", b'{"model": "scripted", "input": "Hello"}', origin=origin,
            **{"content-type": "text/plain"},
        )  # fmt: skip

    assert (reply.status_code, reply.json["error"]["code"]) == (403, "origin_foreign")
    assert engine.decodes == []


async def test_with_tokens_any_host_and_page_may_ask(serve):
    async with serve(tokens=TOKENS) as client:
        reply = await client.request("GET", "/v1/models", host="models.example", origin=PAGE, authorization=BEARER)

    assert reply.status_code == 200
    assert "Access-Control-Allow-Origin" not in reply.headers


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest.mark.parametrize("tokens", [{}, TOKENS])
@pytest.mark.parametrize("cors", [(PAGE,), ("https://b.example", PAGE), ("*",)])
async def test_a_page_that_cors_names_may_ask_and_read_the_headers(serve, tokens, cors):
    async with serve(tokens=tokens, cors=cors) as client:
        preflight = await client.request("OPTIONS", "/v1/responses", origin=PAGE, **PREFLIGHT)
        body = b'{"model": "scripted", "input": "Hello"}'
        reply = await client.request("POST", "/v1/responses", body, origin=PAGE, authorization=BEARER)

    assert preflight.status_code == 200
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert preflight.headers["Access-Control-Allow-Headers"] == "authorization"
    assert reply.status_code == 200
    assert reply.headers["Access-Control-Allow-Origin"] == ("*" if cors == ("*",) else PAGE)
    exposed = reply.headers["Access-Control-Expose-Headers"]
    assert exposed == "X-Interlock-Exchange, X-Interlock-Warning, X-Session-Cache, Retry-After"


async def test_a_page_that_cors_names_can_read_that_its_token_is_wrong(serve):
    async with serve(tokens=TOKENS, cors=(PAGE,)) as client:
        reply = await client.request("GET", "/v1/models", origin=PAGE, authorization="Bearer guess")

    assert (reply.status_code, reply.headers["Access-Control-Allow-Origin"]) == (401, PAGE)


@pytest.mark.parametrize(("cors", "origin"), [((), PAGE), ((PAGE,), "https://evil.example"), ((PAGE,), "null")])
async def test_a_preflight_of_another_page_needs_a_token_like_everything(serve, cors, origin):
    async with serve(tokens=TOKENS, cors=cors) as client:
        reply = await client.request("OPTIONS", "/v1/responses", origin=origin, **PREFLIGHT)

    assert reply.status_code == 401
    assert "Access-Control-Allow-Origin" not in reply.headers


async def test_cors_does_not_let_a_name_that_was_pointed_here(serve):
    async with serve(cors=("*",)) as client:
        assert (await client.request("GET", "/v1/models", host="evil.example", origin=PAGE)).status_code == 403


@pytest.mark.parametrize(("items", "status"), [(2, 200), (3, 400)])
async def test_an_input_may_have_as_many_items_as_the_limit(serve, items, status):
    async with serve(max_input_items=2) as client:
        assert (await client.post(input=[{"role": "user", "content": "Hi"}] * items)).status_code == status
