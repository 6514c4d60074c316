"""What the official clients make of a refusal, a failure and a cut answer: errors of their own kinds, and waits."""

import itertools
import time

import openai
import pytest

from tests.clients import installed
from tests.clients.conftest import TOKEN, await_model
from tests.live import ROOT

pytestmark = pytest.mark.timeout(300)  # clients are slow to start
SAID = {"model": "plain_text", "input": "Hello"}
REFUSED = [
    ({"api_key": "guess"}, SAID, openai.AuthenticationError, "invalid_api_key", None),
    ({}, {**SAID, "model": "nobody"}, openai.NotFoundError, "model_not_found", "model"),
    ({}, {**SAID, "previous_response_id": "resp_none"}, openai.NotFoundError, "previous_response_not_found",
     "previous_response_id"),
    ({}, {**SAID, "input": [{"role": 7, "content": "Hello"}]}, openai.BadRequestError, "invalid_value",
     "input[0].role"),
    ({}, {**SAID, "temperature": 9}, openai.BadRequestError, "invalid_value", "temperature"),
    ({}, {**SAID, "tool_choice": {"type": "function", "name": "look"}}, openai.BadRequestError, "invalid_value",
     "tool_choice"),
]  # fmt: skip


class Waits:
    """The client's clock: it takes note of how long the client would sleep, and wakes it once `meanwhile` is done."""

    def __init__(self):
        self.seconds = []
        self.meanwhile = lambda: None
        self.time = time.time

    def sleep(self, seconds):
        self.seconds.append(seconds)
        self.meanwhile()


@pytest.fixture
def waits(monkeypatch):
    waits = Waits()
    monkeypatch.setattr("openai._base_client.time", waits)
    return waits


@pytest.fixture
def client(guarded):
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=TOKEN, timeout=60) as client:
        yield client


@pytest.fixture
def crowd(guarded):
    """Fill a model and its queue; gives what makes room."""
    streams = []
    for place in ({"running": 1, "waiting": 0}, {"running": 1, "waiting": 1}):
        streams.append(guarded.open_stream(model="held", input="Hello", stream=True))
        await_model(guarded, "held", **place)

    def leave():
        while streams:
            streams.pop().close()
        await_model(guarded, "held", running=0, waiting=0)

    yield leave
    leave()


def first_words(stream):
    with stream:
        return next(event.delta for event in stream if event.type == "response.output_text.delta")


def test_a_full_queue_is_a_rate_limit_error(client, crowd, waits):
    with pytest.raises(openai.RateLimitError) as refused:
        client.with_options(max_retries=0).responses.create(model="held", input="Hello")

    assert (refused.value.code, refused.value.response.headers["Retry-After"]) == ("queue_full", "1")
    assert refused.value.message.count("1 requests are waiting for model 'held'") == 1
    assert waits.seconds == []


def test_a_full_queue_is_waited_for_as_long_as_the_server_says(client, crowd, waits):
    waits.meanwhile = crowd

    answer = first_words(client.responses.create(model="held", input="Hello", stream=True))

    assert (answer, waits.seconds) == ("The", [1.0])


def test_a_model_that_loads_is_waited_for(client, late, waits):
    with pytest.raises(openai.InternalServerError) as refused:
        client.with_options(max_retries=0).responses.create(model="late", input="Hello")
    waits.meanwhile = late

    answer = client.responses.create(model="late", input="Hello")

    assert (refused.value.status_code, refused.value.code) == (503, "model_loading")
    assert (answer.output_text, waits.seconds) == ("The capital of France is Paris.", [2.0])


@pytest.mark.parametrize(("options", "body", "kind", "code", "param"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_error_of_its_own_kind(client, waits, options, body, kind, code, param, stream):
    with pytest.raises(kind) as refused:
        client.with_options(**options).responses.create(**body, stream=stream)

    assert (type(refused.value), refused.value.code, refused.value.param) == (kind, code, param)
    assert waits.seconds == []  # what cannot get better is not tried again


FAILING = ["failure_before_the_first_token", "failure_after_the_first_token", "model_ends_with_an_error"]


@pytest.mark.parametrize("model", FAILING)
def test_a_stream_that_fails_midway_ends_with_its_reason(client, model):
    with client.responses.stream(model=model, input="Hello") as stream:
        events = list(stream)
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            stream.get_final_response()

    raw = list(client.responses.create(model=model, input="Hello", stream=True))

    for last in (events[-1], raw[-1]):
        assert (last.type, last.response.status, last.response.error.code) == (
            "response.failed", "failed", "server_error",
        )  # fmt: skip
        assert last.response.error.message.endswith(".")


@pytest.mark.parametrize("model", FAILING)
def test_a_whole_answer_that_fails_is_tried_again_and_then_an_error(client, waits, model):
    with pytest.raises(openai.InternalServerError) as refused:
        client.responses.create(model=model, input="Hello")

    assert (refused.value.status_code, refused.value.code, len(waits.seconds)) == (500, "server_error", 2)


def test_an_answer_cut_by_its_limit_says_so(client):
    whole = client.responses.create(model="length_stop", input="Hello")
    with client.responses.stream(model="length_stop", input="Hello") as stream:
        last = list(stream)[-1]

    assert last.type == "response.incomplete"
    for response in (whole, last.response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert response.output[0].content[0].text == "The capital"
        assert response.output[0].status == "incomplete"


def test_the_node_client_sees_the_same(guarded, late, tmp_path):
    program = (ROOT / "tests/clients/programs/refused.mjs").read_text()

    lines = installed.run_node(program, SERVER=guarded.url, TOKEN=TOKEN, PIPE=str(tmp_path / "late")).splitlines()

    assert lines == [
        "RateLimitError 429 queue_full undefined 1",
        "The after 1000",
        "InternalServerError 503 model_loading model 2",
        "The capital of France is Paris. after 2000",
        "AuthenticationError 401 invalid_api_key undefined undefined",
        "NotFoundError 404 previous_response_not_found previous_response_id undefined",
        "BadRequestError 400 invalid_value input[0].role undefined",
        *itertools.repeat("response.failed failed server_error", 2),
        "InternalServerError 500 server_error undefined undefined",
        "response.incomplete incomplete max_output_tokens The capital",
        "incomplete incomplete max_output_tokens The capital",
    ]
