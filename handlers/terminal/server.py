"""A running server, as the commands ask it."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Self

import click
import httpx2
import msgspec
from msgspec import Struct

from handlers.loopback import is_loopback, to_hostname
from handlers.settings import SettingsError, from_env
from handlers.terminal.fault import Fault

PATIENCE = httpx2.Timeout(10, read=60)  # a stream says something every ten seconds
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server that listens there is found


class Load(Struct, frozen=True, kw_only=True):
    """How a model is, or one that is to replace it, and since how many seconds or why."""

    state: str
    seconds: float | None = None
    reason: str | None = None


class Condition(Load, frozen=True, kw_only=True):
    """How one model is that is served."""

    running: int
    capacity: int
    waiting: int
    queue_limit: int
    load: Load | None = None


class Health(Struct, frozen=True):
    """How a server is; a stranger is not told of its models."""

    status: str
    models: dict[str, Condition] | None = None


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

    def health(self) -> tuple[str, dict[str, Condition]]:
        """Ask how the server and its models are."""
        health: Health = self.get("/health", Health, allowed=(HTTPStatus.SERVICE_UNAVAILABLE,))
        if health.models is None:
            self._refuse_stranger()
        return health.status, health.models or {}

    def get(self, path: str, kind: Any = Any, *, allowed: tuple[int, ...] = ()) -> Any:
        """Read what is at a path, as `kind`; other statuses than 200 are errors unless they are `allowed`."""
        reply = self._get(path)
        if reply.status_code != HTTPStatus.OK and reply.status_code not in allowed:
            raise Fault(_to_message(self.url, reply))
        return _read(self.url, reply, reply.content, kind)

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Send JSON and give the events of the reply, as they come."""
        with self._explained(), self._client.stream("POST", self.url + path, json=body) as reply:
            if reply.status_code != HTTPStatus.OK:
                reply.read()
                raise Fault(_to_message(self.url, reply))
            for event in httpx2.EventSource(reply):
                if event.data != "[DONE]":
                    yield _read(self.url, reply, event.data, dict[str, Any])

    def _get(self, path: str) -> httpx2.Response:
        with self._explained():
            return self._client.get(self.url + path)

    def _refuse_stranger(self) -> None:
        if self._get("/v1/models").status_code != HTTPStatus.UNAUTHORIZED:
            raise _not_interlock(self.url, HTTPStatus.OK)
        text = f"the server at {self.url} wants a token; give it with --token or INTERLOCK_TOKEN."
        raise Fault(text)

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
        except httpx2.SSEError as error:
            raise _not_interlock(self.url, HTTPStatus.OK) from error
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
    answer = _read(url, reply, reply.content, Any)
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return f"{error['message']} ({reply.status_code})"
    return f"the server at {url} answered with status {reply.status_code}."


def _read(url: str, reply: httpx2.Response, text: str | bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise _not_interlock(url, reply.status_code) from error


def _not_interlock(url: str, status: int) -> Fault:
    return Fault(f"what answers at {url} is not Interlock (status {status}).")
