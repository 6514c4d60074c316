"""The official client against a real gunicorn: every scenario, by each way the client has of asking."""

import contextlib

import openai
import pytest

from tests.live import scripted, serving
from tests.sequences.test_text import SCENARIOS

ENDS = {
    "plain_text": "completed",
    "length_stop": "incomplete",
    "empty_output": "completed",
    "empty_output_at_the_limit": "incomplete",
    "unicode_split_over_tokens": "completed",
    "reasoning_then_text": "completed",
    "reasoning_only": "completed",
    "reasoning_cut": "incomplete",
    "text_reasoning_text": "completed",
    "text_then_two_calls": "completed",
    "one_call": "completed",
    "reasoning_then_a_call": "completed",
    "a_call_cut_by_the_limit": "incomplete",
}
TEXTS = {
    "plain_text": "The capital of France is Paris.",
    "length_stop": "The capital",
    "empty_output": "",
    "empty_output_at_the_limit": "",
    "unicode_split_over_tokens": "Grüße 🦊你好",
    "reasoning_then_text": "Paris.",
    "text_reasoning_text": "First.Second.",
    "text_then_two_calls": "I look.",
    "a_call_cut_by_the_limit": "I look.",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    db = tmp_path_factory.mktemp("live") / "responses.duckdb"
    arguments, env = scripted(str(db))
    with (
        serving(*arguments, **env) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_creates_each_response(client, scenario):
    if scenario not in ENDS:
        with pytest.raises(openai.InternalServerError, match="exchange ex_"):
            client.responses.create(model=scenario, input="Hello")
        return

    response = client.responses.create(model=scenario, input="Hello")

    assert (response.status, response.output_text) == (ENDS[scenario], TEXTS.get(scenario, ""))
    assert response.usage.input_tokens_details.cached_tokens == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_reads_each_raw_stream(client, scenario):
    with client.responses.create(model=scenario, input="Hello", stream=True) as stream:
        events = list(stream)

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == f"response.{ENDS.get(scenario, 'failed')}"
    assert events[-1].response.status == ENDS.get(scenario, "failed")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_stream_helper_accumulates_each(client, scenario):
    with client.responses.stream(model=scenario, input="Hello") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        whole = ENDS.get(scenario) == "completed"
        with contextlib.nullcontext() if whole else pytest.raises(RuntimeError, match=r"response\.completed"):
            assert stream.get_final_response().output_text == text

    assert text == TEXTS.get(scenario, text)


def test_a_second_turn_follows_at_once(client):
    first = client.responses.create(model="plain_text", input="Hello")

    for _ in range(20):
        first = client.responses.create(model="plain_text", input="And?", previous_response_id=first.id)

    assert first.status == "completed"


def test_a_chained_turn_by_stream_and_by_helper(client):
    first = client.responses.create(model="plain_text", input="Hello")

    with client.responses.create(
        model="plain_text", input="And?", previous_response_id=first.id, stream=True
    ) as stream:  # fmt: skip
        second = list(stream)[-1].response
    with client.responses.stream(model="plain_text", input="And?", previous_response_id=second.id) as stream:
        third = stream.get_final_response()

    assert (second.previous_response_id, third.previous_response_id) == (first.id, second.id)


def test_refusals_are_the_clients_own_exceptions(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="gpt-5", input="Hello")
    with pytest.raises(openai.BadRequestError) as invalid:
        client.responses.create(model="plain_text", input="Hello", temperature=9)

    assert unknown.value.code == "model_not_found"
    assert (invalid.value.code, invalid.value.param) == ("invalid_value", "temperature")


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == [*SCENARIOS, "held"]
