"""The check that every reply of the test-suite goes through finds what is wrong with one."""

import json
from pathlib import Path

import jsonschema_rs
import pydantic
import pytest

from tests.openapi import wire

STREAMS = Path(__file__).parent.parent / "sequences/__snapshots__"
EVENTS = {
    event["type"]: event for path in sorted(STREAMS.rglob("*.sse")) for event in wire.read_events(path.read_text())
}
WRONG = (jsonschema_rs.ValidationError, pydantic.ValidationError, KeyError)


def _without(thing, key):
    return {name: value for name, value in thing.items() if name != key}


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind in EVENTS for key in EVENTS[kind]])
def test_an_event_that_lacks_a_key_is_found(kind, key):
    wire.check_event(EVENTS[kind])

    with pytest.raises(WRONG):
        wire.check_event(_without(EVENTS[kind], key))


@pytest.mark.parametrize("key", EVENTS["response.completed"]["response"])
def test_a_response_that_lacks_a_key_is_found(key):
    response = EVENTS["response.completed"]["response"]
    wire.check_response(response)

    with pytest.raises(WRONG):
        wire.check_response(_without(response, key))


@pytest.mark.parametrize("key", ["message", "type", "param", "code"])
def test_an_error_that_lacks_a_key_is_found(key):
    error = {"message": "No.", "type": "invalid_request_error", "param": None, "code": None}
    wire.check_error({"error": error})

    with pytest.raises(WRONG):
        wire.check_error({"error": _without(error, key)})


def test_an_item_that_only_the_client_refuses_is_found():
    """The document takes any status for a response; the client's types know six."""
    response = {**EVENTS["response.completed"]["response"], "status": "done"}

    with pytest.raises(pydantic.ValidationError):
        wire.check_response(response)


def test_a_whole_stream_is_checked_and_a_cut_frame_is_left_out():
    frame = f"event: error\ndata: {json.dumps({'type': 'error', 'sequence_number': 0})}\n\n"

    wire.check_reply(200, "text/event-stream", frame[:-1])
    with pytest.raises(WRONG):
        wire.check_reply(200, "text/event-stream", frame)


@pytest.mark.parametrize("status", [200, 400])
def test_a_whole_body_is_checked_by_its_status(status):
    with pytest.raises((*WRONG, AssertionError)):
        wire.check_reply(status, "application/json", '{"fine": true}')
