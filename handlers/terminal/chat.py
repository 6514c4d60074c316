"""interlock chat: a conversation with a model, streamed into the terminal."""

import sys
from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any

import click
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from handlers.terminal.fault import Fault
from handlers.terminal.server import Server, asks_server, to_server

with suppress(ImportError):
    import readline  # noqa: F401 - gives the prompt a history

SAYS = {"response.output_text.delta": "", "response.reasoning_summary_text.delta": "dim italic"}
UNPRINTED = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])  # but for tabs and lines
ENDS = frozenset({"response.completed", "response.incomplete"})
LIMIT = 1000  # tokens; a small model may never find an end
HINT = "Ctrl-C stops an answer, Ctrl-D ends the conversation."


class Conversation:
    """What was said so far: kept by the server, or sent again each time where the server keeps nothing."""

    def __init__(self, server: Server, model: str, instructions: str | None, limit: int = LIMIT) -> None:
        self._server = server
        self._asked = {"model": model, "stream": True, "max_output_tokens": limit}
        if instructions:
            self._asked["instructions"] = instructions
        self._previous: str | None = None
        self._items: list[dict[str, Any]] = []

    def ask(self, question: str) -> Generator[dict[str, Any]]:
        """Ask, and give the events of the answer. One that is broken off, or fails, was never said."""
        item = {"role": "user", "content": question}
        body = {**self._asked, "input": [*self._items, item], "previous_response_id": self._previous}
        for event in self._server.stream("/v1/responses", body):
            yield event
            if event.get("type") in ENDS:
                self._keep(event["response"], item)

    def _keep(self, response: dict[str, Any], item: dict[str, Any]) -> None:
        if response["store"]:
            self._previous, self._items = response["id"], []
        else:
            self._items += [item, *response["output"]]


@click.command()
@click.option("--model", metavar="NAME", help="Model to talk to; default: the first that is ready.")
@click.option("--instructions", metavar="TEXT", help="How the model should behave.")
@click.option(
    "--max-output-tokens",
    "limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    metavar="COUNT",
    help="Cut an answer there.",
)
@asks_server
def chat(*, model: str | None, instructions: str | None, limit: int, url: str | None, token: str | None) -> None:
    """Talk to a model of a running server.

    A question on standard input is answered once, on standard output.
    """
    with to_server(url, token) as server:
        conversation = Conversation(server, model or _first_ready(server), instructions, limit)
        if sys.stdin.isatty():
            _talk(conversation, Console(highlight=False))
        elif question := sys.stdin.read().strip():
            answer(conversation.ask(question), Console(highlight=False))
        else:
            text = "standard input has no question; write one, or run 'interlock chat' in a terminal."
            raise Fault(text)


def _first_ready(server: Server) -> str:
    _, models = server.health()
    ready = next((name for name, condition in models.items() if condition.state == "ready"), None)
    if ready is None:
        states = ", ".join(f"{name} is {condition.state}" for name, condition in models.items())
        text = f"no model is ready ({states or 'none is served'}); 'interlock models' tells more."
        raise Fault(text)
    return ready


def _talk(conversation: Conversation, console: Console) -> None:
    console.print(Text(HINT, style="dim"))
    while (question := _next_question(console)) is not None:
        try:
            answer(conversation.ask(question), console)
        except KeyboardInterrupt:
            console.print(Text(" (stopped)", style="dim"))
        except Fault as fault:
            fault.show()


def _next_question(console: Console) -> str | None:
    try:
        while not (question := console.input("[bold]> [/bold]").strip()):
            pass
    except (EOFError, KeyboardInterrupt):
        console.print()
        return None
    return question


def answer(events: Generator[dict[str, Any]], console: Console) -> None:
    """Print an answer as it comes; to stop reading it has the server stop."""
    style = None
    with closing(events):
        for event in events:
            kind = event.get("type")
            if kind in SAYS:
                style = _say(event["delta"], SAYS[kind], style, console)
            elif kind in ENDS:
                _print("" if kind == "response.completed" else " (cut at the length limit)", "dim", console)
                console.print()
                return
            elif kind == "response.failed":
                raise Fault((event["response"]["error"] or {}).get("message") or "the response failed.")
    text = "the server broke off its answer."
    raise Fault(text)


def _say(text: str, style: str, before: str | None, console: Console) -> str:
    """Print a part of an answer, apart from what came before in another style; give its style."""
    if before not in {None, style}:
        console.print("\n")
    _print(text, style, console)
    return style


def _print(text: str, style: str, console: Console) -> None:
    # a model may write sequences that move the cursor or rename the terminal
    shown = text.translate(UNPRINTED) if console.is_terminal else text
    # a Text would have its tabs turned into spaces
    segment = Segment(shown, console.get_style(style) if style else None)
    console.print(Segments([segment]), end="", soft_wrap=True)
