"""A running server, as the commands ask it."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self

import click
import httpx2

from handlers.loopback import is_loopback, to_hostname
from handlers.settings import SettingsError, from_env
from handlers.terminal.fault import Fault

PATIENCE = httpx2.Timeout(10, read=60)  # a stream says something every ten seconds
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server that listens there is found


class NoServerError(Fault):
    """Nobody answers at the URL."""


class Server:
    """Asks one server; what goes wrong is a Fault."""

    def __init__(self, url: str, token: str | None = None, transport: httpx2.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = httpx2.Client(
            headers={b"Authorization": f"Bearer {token}".encode()} if token else None,
            timeout=PATIENCE,
            transport=transport,
            trust_env=not is_loopback(to_hostname(self.url)),  # no proxy leads to this machine
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def health(self) -> dict[str, Any]:
        """Ask how the server and its models are."""
        health: dict[str, Any] = self.get("/health", allowed=(503,))
        if "models" not in health:
            text = f"the server at {self.url} wants a token; give it with --token or INTERLOCK_TOKEN."
            raise Fault(text)
        return health

    def get(self, path: str, *, allowed: tuple[int, ...] = ()) -> Any:
        """Read the JSON at a path; other statuses than 200 are errors unless they are `allowed`."""
        with self._explained():
            reply = self._client.get(self.url + path)
        if reply.status_code != httpx2.codes.OK and reply.status_code not in allowed:
            raise Fault(_to_message(self.url, reply))
        return _to_json(self.url, reply)

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Send JSON and give the events of the reply, as they come."""
        with self._explained(), self._client.stream("POST", self.url + path, json=body) as reply:
            if reply.status_code != httpx2.codes.OK:
                reply.read()
                raise Fault(_to_message(self.url, reply))
            for event in httpx2.EventSource(reply):
                if event.data != "[DONE]":
                    yield event.json()  # type: ignore[misc]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            text = f"no server answers at {self.url}; start one with 'interlock serve', or give another --url."
            raise NoServerError(text) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            text = f"{self.url!r} is no URL of a server; --url takes one such as http://127.0.0.1:8080."
            raise Fault(text) from error
        except httpx2.HTTPError as error:
            text = f"the server at {self.url} broke off: {error}."
            raise Fault(text) from error


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which server to ask."""
    url = click.option("--url", metavar="URL", help="Server to ask; default: INTERLOCK_HOST and INTERLOCK_PORT.")
    token = click.option("--token", metavar="TOKEN", help="Token to send; default: the first of INTERLOCK_TOKEN.")
    return url(token(command))


def to_server(url: str | None, token: str | None) -> Server:
    """Find the server that is asked for, or the one that the environment describes."""
    try:
        settings = from_env()
    except SettingsError as error:
        raise Fault(str(error)) from error
    host = ANYWHERE.get(settings.host, settings.host)
    here = f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
    return Server(url or here, token or next(iter(settings.tokens.values()), None))


def _to_message(url: str, reply: httpx2.Response) -> str:
    answer = _to_json(url, reply)
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return f"{error['message']} ({reply.status_code})"
    return f"the server at {url} answered with status {reply.status_code}."


def _to_json(url: str, reply: httpx2.Response) -> Any:
    try:
        return reply.json()
    except ValueError as error:
        text = f"what answers at {url} is not Interlock (status {reply.status_code})."
        raise Fault(text) from error
