"""What the server of these tests has been through, and how it is asked."""

import json
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.console.names import HOSTILE
from tests.live import PATIENCE, Server

PAGED = 30  # answers, more than a page of the list has


class Seen(NamedTuple):
    """A server, and the ids of exchanges by what became of them."""

    server: Server
    ids: dict[str, str]

    def trace(self, name):
        """Give how one of the exchanges went."""
        return self.server.ask("GET", f"/interlock/exchanges/{self.ids[name]}")[1]


def answer(server, **body):
    """Have a request answered; gives the id of its exchange, and the reply."""
    return ask(server, "POST", "/v1/responses", json.dumps({"input": "Say where it is.", **body}))


def ask(server, method, path, body=None):
    """Make a request; gives the id of its exchange, and the reply."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE)
    connection.request(method, path, body)
    reply = connection.getresponse()
    said = json.loads(reply.read())
    connection.close()
    return reply.headers["X-Interlock-Exchange"], said


@contextmanager
def seed(server):
    """Make exchanges of each kind; gives their ids. While it lasts, one decodes and two wait."""
    ids = {}
    for _ in range(PAGED):
        ids["plain"], first = answer(server, model="plain")
    ids["chained"], _ = answer(server, model="plain", previous_response_id=first["id"])
    ids["hostile"], _ = answer(server, model=HOSTILE)
    ids["failed"], _ = answer(server, model="failing")
    ids["unrouted"], _ = ask(server, "GET", "/%3Cb%3Enowhere")
    ids["late"], slow = answer(server, model="slow-disk")
    ids["503"], _ = answer(server, model="slow-disk", previous_response_id=slow["id"])
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(server.open_stream(model="held", input="Hello", stream=True))
        await_held(server)
        ids["429"], _ = answer(server, model="held")
        yield ids


def await_held(server):
    """Wait until one decodes and two wait on the model that never ends."""
    _await(server, lambda: _traces(server, "held", "QUEUED")[1:] and _traces(server, "held", "DISPATCHING"))


def await_decode(server, model):
    """Wait until a model decodes; gives the id of the exchange."""
    return _await(server, lambda: _traces(server, model, "DISPATCHING"))[0]["id"]


def _traces(server, model, state):
    return server.ask("GET", f"/interlock/exchanges?model={model}&state={state}")[1]["data"]


def _await(server, look):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if seen := look():
            return seen
        time.sleep(0.05)
    raise AssertionError("".join(server.log))
