"""How soon turn 10 of a chat gives its first token: by its chain, and sent whole again, against a cold start.

Who sends another `Authorization` shares no cache, so to him the same conversation is cold.
"""

from typing import Any

from bench.asking import Heard, ask
from bench.servers import interlock
from bench.table import Row, compare, rounds
from engine.starter import NAME

TURNS = 10
TOKENS = 40
ROUNDS = 5
TOPICS = ("tea", "rivers", "the moon", "bread", "bees", "snow", "maps", "salt", "glass")


def to_question(topic: str) -> str:
    """Ask for more than fits in a turn."""
    return f"Tell me all you know about {topic}, and why it matters to the people of a small town by the sea."


def chat(url: str) -> tuple[str, list[dict[str, Any]]]:
    """Hold the turns before the last through the server; give the chain's end, and all that was said."""
    previous, said = None, []
    for topic in TOPICS[: TURNS - 1]:
        body = {"input": to_question(topic), "previous_response_id": previous, "max_output_tokens": TOKENS}
        heard = ask(url, {"model": NAME, "temperature": 0, **body})
        previous = heard.response["id"]
        said += [to_item("user", to_question(topic)), to_item("assistant", heard.text)]
    return str(previous), said


def to_item(role: str, text: str) -> dict[str, Any]:
    """Write what was said as an input item."""
    return {"type": "message", "role": role, "content": text}


def first_token(heard: Heard) -> float:
    """Tell how many seconds the first token took."""
    return heard.times[0] - heard.asked_at


class LastTurn:
    """The last turn, asked in three ways; each asking has its own words, so that it was never asked before."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._previous, self._said = chat(url)
        self._asked = 0

    def by_chain(self) -> float:
        return self._time({"input": self._next(), "previous_response_id": self._previous})

    def whole(self) -> float:
        return self._time({"input": [*self._said, to_item("user", self._next())]})

    def cold(self) -> float:
        question = self._next()
        return self._time(
            {"input": [*self._said, to_item("user", question)]}, Authorization=f"Bearer stranger-{self._asked}"
        )

    def _next(self) -> str:
        self._asked += 1
        return f"{self._asked} questions later: which of these matters most?"

    def _time(self, body: dict[str, Any], **headers: str) -> float:
        asked = {"model": NAME, "temperature": 0, "max_output_tokens": 2, "store": False, **body}
        return first_token(ask(self._url, asked, **headers))


def measure() -> list[Row]:
    """Compare both ways with a cold start."""
    with interlock() as server:
        last = LastTurn(server.url)
        print("first token of turn 10, seconds, by chain against cold")
        chain = rounds(last.by_chain, last.cold, ROUNDS)
        print("first token of turn 10, seconds, sent whole against cold")
        whole = rounds(last.whole, last.cold, ROUNDS)
    return [
        compare("first token of turn 10, by chain / cold", "s", chain, most=0.10),
        compare("first token of turn 10, sent whole / cold", "s", whole, most=0.15),
    ]
