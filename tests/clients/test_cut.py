"""The official client on a connection that is cut in the middle of a stream."""

import openai
import pytest

from tests.clients.cutting import cutting

CUTS = ("event: response.output_text.delta", "response.output_text.done")
ASKED = {"model": "qwen", "input": "Count from 1 to 3.", "stream": True}


def read(stream, events):
    """Read as far as the connection goes; tells whether it held to the end."""
    try:
        events += stream
    except openai.APIConnectionError:
        return False
    return True


@pytest.fixture
def client(server):
    with cutting(server.url, *CUTS) as connection:
        with openai.OpenAI(base_url=f"{connection.url}/v1", api_key="none", timeout=60) as client:
            yield client
        assert connection.left == 0


def test_a_background_response_is_read_on_from_where_each_connection_broke(client):
    events = []
    held = [read(client.responses.create(**ASKED, background=True), events)]
    while not held[-1]:
        seen, last = events[0].response.id, events[-1].sequence_number
        held.append(read(client.responses.retrieve(seen, stream=True, starting_after=last), events))

    assert held == [False, False, True]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "1, 2, 3."
    assert events[-1].type == "response.completed"
    assert client.responses.retrieve(events[0].response.id) == events[-1].response


def test_the_clients_own_helper_reads_on_too(client):
    events = []
    assert not read(client.responses.create(**ASKED, background=True), events)
    seen, last = events[0].response.id, events[-1].sequence_number
    assert not read(client.responses.retrieve(seen, stream=True, starting_after=last), events)

    with client.responses.stream(response_id=seen, starting_after=last) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()

    assert numbers[0] == last + 1
    assert (final.id, final.status, final.output_text) == (seen, "completed", "1, 2, 3.")


def test_a_stream_that_is_not_of_the_background_dies_with_its_connection_and_frees_the_model(client, server):
    events = []
    for _ in CUTS:
        assert not read(client.responses.create(**ASKED), events)

    assert client.responses.create(**{**ASKED, "stream": False}).output_text == "1, 2, 3."
    assert server.ask("GET", "/v1/models/qwen")[1]["running"] == 0
