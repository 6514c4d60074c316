"""The product as its newcomer meets it: the command, the real model, a stream, a restart, a second turn that knows."""

import json
import re

import openai
import pytest

from engine.starter import ensure_starter
from tests.live import Server, serving

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
MODEL = "smollm2-135m-instruct"
ANSWER = "The capital of France is Paris."
COMMAND = ("handlers.cli", "serve", "--port", "0", "--db")


def connect(server: Server) -> openai.OpenAI:
    server.ask_until(200, "GET", "/health")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_second_turn_after_a_restart_knows_the_first(tmp_path):
    db = str(tmp_path / "new" / "responses.duckdb")
    with serving(*COMMAND, db) as server, connect(server) as client:
        with client.responses.stream(
            model=MODEL, input="What is the capital of France?", temperature=0, instructions=""
        ) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            first = stream.get_final_response()
        alone = client.responses.create(
            model=MODEL, input="Repeat your last answer.", temperature=0, max_output_tokens=12
        )  # fmt: skip

    with serving(*COMMAND, db) as server, connect(server) as client:
        second = client.responses.create(
            model=MODEL, input="Repeat your last answer.", temperature=0, previous_response_id=first.id
        )

    assert (first.status, first.output_text) == ("completed", ANSWER)
    assert "".join(deltas) == ANSWER
    assert len(deltas) > 1
    assert (alone.status, alone.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert alone.usage.output_tokens == 12
    assert ANSWER not in alone.output_text
    assert (second.status, second.output_text) == ("completed", ANSWER)
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_required_call_and_an_answer_of_a_schema_are_what_was_asked():
    tool = {"type": "function", "name": "get_weather", "parameters": to_object(city={"enum": ["Oslo", "Rome"]})}
    form = {"type": "json_schema", "name": "verdict", "schema": to_object(good={"type": "boolean"}), "strict": True}
    with serving(*COMMAND, ":memory:") as server, connect(server) as client:
        for _ in range(2):
            called = client.responses.create(
                model=MODEL, input="Weather in Oslo?", tools=[tool], tool_choice="required", parallel_tool_calls=False
            )
            answered = client.responses.create(model=MODEL, input="Is rain good?", text={"format": form})

            assert [(item.type, item.name) for item in called.output] == [("function_call", "get_weather")]
            assert json.loads(called.output[0].arguments)["city"] in {"Oslo", "Rome"}
            assert type(json.loads(answered.output_text)["good"]) is bool
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input="Hi", text={"format": {**form, "schema": {"type": "strng"}}})

    assert (caught.value.code, caught.value.param) == ("invalid_json_schema", "text.format.schema")


def to_object(**properties):
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def test_a_model_from_a_folder_is_served_under_its_name():
    with serving(*COMMAND, ":memory:", "--model", f"mine={ensure_starter()}") as server:
        server.ask_until(200, "GET", "/health")

    log = "".join(server.log)
    assert f"curl -N {server.url}/v1/responses" in log
    assert re.search(r'"model": "mine", "input": "What is the capital of France\?"', log)
