"""Asks a live server, and holds what it answers to the specification."""

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.live import PATIENCE, Server
from tests.openapi import wire


class Asked:
    """A live server and the name of its model; greedy, so that an answer is the same every time."""

    def __init__(self, server: Server, model: str) -> None:
        self.server = server
        self.model = model

    def ask(self, **body: Any) -> dict[str, Any]:
        """Ask for a whole response."""
        status, answer = self.server.ask("POST", "/v1/responses", {"model": self.model, "temperature": 0, **body})
        assert status == 200, answer
        wire.check_response(answer)
        return answer

    def stream(self, **body: Any) -> list[dict[str, Any]]:
        """Ask for a stream, and give its events."""
        connection = HTTPConnection(urlsplit(self.server.url).netloc, timeout=PATIENCE)
        body = {"model": self.model, "temperature": 0, "stream": True, **body}
        connection.request("POST", "/v1/responses", json.dumps(body))
        text = connection.getresponse().read().decode()
        connection.close()
        events = list(wire.read_events(text))
        for event in events:
            wire.check_event(event)
        return events
