"""The commands in a terminal, against a real server."""

import io
import os
import subprocess
import sys
from contextlib import closing

import pytest
from rich.console import Console

from handlers.cli import cli
from handlers.terminal.chat import Conversation, answer
from handlers.terminal.fault import Fault
from handlers.terminal.server import Server
from tests.live import ROOT, scripted, serving
from tests.terminal import run

pytestmark = pytest.mark.usefixtures("bare")

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    return str(tmp_path_factory.mktemp("terminal") / "responses.duckdb")


@pytest.fixture(scope="module")
def server(db):
    arguments, env = scripted(db)
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        yield server


def test_models_are_listed_with_their_places(server):
    ended = run("models", "--url", server.url)

    lines = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert lines[0].split() == ["model", "state", "running", "waiting", "note"]
    assert lines[1].split() == ["plain_text", "ready", "0", "of", "1", "0", "of", "16"]
    assert lines[-1] == "The server is ok."


@pytest.mark.parametrize("command", [["models"], ["trace", "ex_1"], ["chat"]])
def test_no_server_is_one_sentence(command):
    ended = run(*command, "--url", NOWHERE, input="Hello")

    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert ended.stderr == (
        f"interlock: no server answers at {NOWHERE}; start one with 'interlock serve', or give another --url.\n"
    )


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://[", "http://127.0.0.1:99999"])
def test_what_is_no_url_is_one_sentence(url):
    ended = run("models", "--url", url)

    assert (ended.exit_code, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("interlock: ")


def test_a_wrong_option_exits_with_two():
    assert run("models", "--nonsense").exit_code == 2
    assert run("models", "stray").exit_code == 2


def test_the_config_says_where_each_setting_is_from_and_hides_tokens(monkeypatch):
    monkeypatch.setenv("INTERLOCK_TOKEN", "anna=s3cret,ci=t0ken")
    monkeypatch.setenv("INTERLOCK_PORT", "8123")

    ended = run("config")

    rows = {line.split()[0]: line.split()[1:] for line in ended.stdout.splitlines()}
    assert rows["INTERLOCK_PORT"] == ["8123", "environment"]
    assert rows["INTERLOCK_HOST"] == ["127.0.0.1", "default"]
    assert rows["INTERLOCK_TOKEN"] == ["anna=(hidden),", "ci=(hidden)", "environment"]
    assert "s3cret" not in ended.stdout


@pytest.mark.parametrize("command", [["config"], ["models"], ["trace", "x"], ["chat"]])
def test_a_setting_that_cannot_be_used_is_one_sentence(monkeypatch, command):
    monkeypatch.setenv("INTERLOCK_PORT", "many")

    ended = run(*command)

    assert (ended.exit_code, ended.stderr) == (
        1, "interlock: INTERLOCK_PORT takes a whole number from 0 to 65535, not 'many'.\n",
    )  # fmt: skip


def test_the_drawings_are_checked_and_drawn(tmp_path):
    assert run("diagrams", "--check").exit_code == 0
    assert run("diagrams", "--check", "--out", str(tmp_path)).exit_code == 1
    assert run("diagrams", "--out", str(tmp_path)).exit_code == 0
    assert run("diagrams", "--check", "--out", str(tmp_path)).exit_code == 0


def test_a_question_on_standard_input_is_answered_on_standard_output(server):
    ended = run("chat", "--url", server.url, "--model", "plain_text", input="What is the capital of France?\n")

    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "The capital of France is Paris.\n", "")


def test_the_first_model_that_is_ready_is_asked(server):
    assert run("chat", "--url", server.url, input="Hello").stdout == "The capital of France is Paris.\n"


def test_no_question_is_one_sentence(server):
    ended = run("chat", "--url", server.url, input=" \n")

    assert (ended.exit_code, ended.stderr.startswith("interlock: standard input has no question")) == (1, True)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("nobody", "Model 'nobody' is not loaded; the models are: plain_text"),
        ("model_ends_with_an_error", "The model ended its answer with an error"),
    ],
)
def test_an_answer_that_fails_is_one_sentence(server, model, sentence):
    ended = run("chat", "--url", server.url, "--model", model, input="Hello")

    assert (ended.exit_code, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith(f"interlock: {sentence}")


class Terminal:
    """A terminal of a given width, and what it shows."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, width=20, highlight=False)

    @property
    def text(self) -> str:
        return self.file.getvalue()


def test_reasoning_and_text_stand_apart_and_a_limit_is_told(server):
    shown, cut = Terminal(), Terminal()
    with Server(server.url) as asked:
        answer(Conversation(asked, "reasoning_then_text", None).ask("Hello"), shown.console)
        answer(Conversation(asked, "length_stop", None).ask("Hello"), cut.console)

    assert shown.text == "Look it up.\n\nParis.\n"
    assert cut.text == "The capital (cut at the length limit)\n"


def bodies(monkeypatch, asked):
    """Note what is sent."""
    sent, stream = [], asked.stream

    def note(path, body):
        sent.append(body)
        return stream(path, body)

    monkeypatch.setattr(asked, "stream", note)
    return sent


def test_a_conversation_continues_what_the_server_keeps(server, monkeypatch):
    with Server(server.url) as asked:
        sent = bodies(monkeypatch, asked)
        conversation = Conversation(asked, "plain_text", "Be short.")
        ids = [list(conversation.ask(question))[-1]["response"]["id"] for question in ("One?", "Two?")]

    assert [body["previous_response_id"] for body in sent] == [None, ids[0]]
    assert sent[1]["input"] == [{"role": "user", "content": "Two?"}]
    assert sent[0]["instructions"] == "Be short."
    assert sent[0]["max_output_tokens"] == 1000


def test_a_conversation_is_sent_again_where_the_server_keeps_nothing(server, monkeypatch):
    with Server(server.url) as asked:
        sent = bodies(monkeypatch, asked)
        conversation = Conversation(asked, "plain_text", None)
        conversation._asked["store"] = False
        for question in ("One?", "Two?"):
            list(conversation.ask(question))

    assert sent[1]["previous_response_id"] is None
    assert [item["role"] for item in sent[1]["input"]] == ["user", "assistant", "user"]


def test_an_answer_that_is_stopped_frees_the_model_and_was_never_said(server, monkeypatch):
    with Server(server.url) as asked:
        sent = bodies(monkeypatch, asked)
        conversation = Conversation(asked, "held", None)
        for _ in range(3):  # the model answers one at a time, so each finds it free
            with closing(conversation.ask("Hello")) as events:
                while next(events)["type"] != "response.output_text.delta":
                    pass

    assert [body["previous_response_id"] for body in sent] == [None] * 3


def test_a_model_cannot_steer_the_terminal():
    terminal = Terminal()
    terminal.console._force_terminal = True
    said = {"type": "response.output_text.delta", "delta": "a\x1b]0;title\x07\x9b2Jb\tc\n"}

    answer(iter_events(said, {"type": "response.completed"}), terminal.console)

    assert terminal.text == "a]0;title2Jb\tc\n\n"


def iter_events(*events):
    yield from events


def test_a_stream_without_its_last_word_is_a_fault():
    with pytest.raises(Fault, match="broke off"):
        answer(iter_events(), Terminal().console)


def test_a_server_with_tokens_wants_one(tmp_path):
    arguments, env = scripted(str(tmp_path / "responses.duckdb"))
    with serving(*arguments, **env, INTERLOCK_TOKEN="anna=tök3n") as server:  # noqa: S106 - for this test alone
        absent = run("models", "--url", server.url)
        wrong = run("chat", "--url", server.url, "--token", "guess", input="Hello")
        right = run("chat", "--url", server.url, "--token", "tök3n", input="Hello")
        named = run("chat", "--url", server.url, input="Hello", env={"INTERLOCK_TOKEN": "anna=tök3n"})

    assert (
        absent.stderr
        == f"interlock: the server at {server.url} wants a token; give it with --token or INTERLOCK_TOKEN.\n"
    )
    assert wrong.stderr == "interlock: The token is none of this server's. (401)\n"
    assert right.stdout == named.stdout == "The capital of France is Paris.\n"


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o nosort -F"), ("zsh", "#compdef interlock"), ("fish", "complete")]
)
def test_the_shell_can_complete(shell, word):
    env = {**os.environ, "_INTERLOCK_COMPLETE": f"{shell}_source"}
    ended = subprocess.run(
        [sys.executable, "-m", "handlers.cli"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )

    assert word in ended.stdout


def test_each_command_has_help_that_fits_a_line():
    for name, command in cli.commands.items():
        assert run(name, "--help").exit_code == 0
        assert command.get_short_help_str(60).endswith((".", "..."))


def test_an_interrupt_closes_the_stream_at_once():
    closed = []

    def events():
        try:
            yield {"type": "response.output_text.delta", "delta": "The"}
        finally:
            closed.append(True)

    class Interrupted(io.StringIO):
        def write(self, _):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        answer(events(), Console(file=Interrupted()))

    assert closed == [True]  # though the traceback still holds the stream
    assert raised.tb is not None
