"""The public acceptance tests over WebSocket: the same events as text frames, one response at a time."""

import json

import pytest
from websockets.sync.client import connect

from tests.acceptance.requests import COUNTING, say
from tests.acceptance.test_compact import compacted
from tests.live import PATIENCE
from tests.openapi import wire

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}
WORD = [say("user", "The code word is heron.")]
ASKED = [say("user", "What was the code word?")]


class Socket:
    """A socket to a live server."""

    def __init__(self, socket, model):
        self._socket = socket
        self._model = model

    def ask(self, **body):
        """Make a response; gives the event that ends it."""
        self._socket.send(json.dumps({"type": "response.create", "model": self._model, **body}))
        while True:
            event = json.loads(self._socket.recv(PATIENCE))
            (wire.check_socket_error if event["type"] == "error" else wire.check_event)(event)
            if event["type"] in ENDS:
                return event

    def told(self, **body):
        """Make a response that must be completed."""
        ended = self.ask(**body)
        assert ended["type"] == "response.completed", ended
        assert ended["response"]["output"]
        return ended["response"]


@pytest.fixture
def open_socket(sensible):
    opened = []

    def dial():
        opened.append(connect(sensible.server.url.replace("http", "ws", 1) + "/v1/responses"))
        return Socket(opened[-1], sensible.model)

    yield dial
    for socket in opened:
        socket.close()


def test_websocket_response(open_socket):
    open_socket().told(input=COUNTING)


def test_websocket_sequential_responses(open_socket):
    socket = open_socket()

    answers = [socket.told(input=COUNTING, store=False) for _ in range(2)]

    assert answers[0]["id"] != answers[1]["id"]


def test_websocket_continuation(open_socket):
    socket = open_socket()
    first = socket.told(input=WORD, store=False)

    second = socket.told(input=ASKED, store=False, previous_response_id=first["id"])

    assert second["output"][-1]["content"][0]["text"] == "The code word is heron."


def test_websocket_reconnect_store_false_recovery(open_socket):
    first = open_socket().told(input=WORD, store=False)
    socket = open_socket()

    refused = socket.ask(input=ASKED, store=False, previous_response_id=first["id"])

    assert refused["error"]["code"] == "previous_response_not_found"
    socket.told(input=ASKED, store=False)


def test_websocket_previous_response_not_found(open_socket):
    refused = open_socket().ask(input=ASKED, store=False, previous_response_id="resp_none")

    assert refused["error"]["code"] == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(open_socket):
    socket = open_socket()
    first = socket.told(input=WORD, store=False)
    stray = {"type": "function_call_output", "call_id": "call_none", "output": "Rain"}

    failed = socket.ask(input=[stray], store=False, previous_response_id=first["id"])
    evicted = socket.ask(input=ASKED, store=False, previous_response_id=first["id"])

    assert failed["type"] == "error"
    assert evicted["error"]["code"] == "previous_response_not_found"


def test_websocket_compact_new_chain(open_socket, sensible):
    window = compacted(sensible)["output"]

    open_socket().told(input=[*window, *ASKED], store=False)
