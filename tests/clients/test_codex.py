"""Codex CLI, set up as its page says, works on tasks, over HTTP and WebSocket, on good connections and on bad ones."""

import json
import threading

import pytest

from tests.clients.conftest import TOKEN
from tests.clients.cutting import cutting
from tests.clients.pages import read_output, read_program

pytestmark = pytest.mark.timeout(300)  # Codex is large
EXEC = "codex exec --json --skip-git-repo-check --sandbox workspace-write"
TURNS = [
    "'The code word is heron.'",
    "resume --last 'Run `echo 42 >> answer.txt`, then `cat answer.txt`, and tell me what it says.'",
    "resume --last 'What was the code word?'",
]
CUTS = ("response.function_call_arguments.delta", "response.output_text.delta")  # in the second turn


def test_the_commands_of_the_page_do_the_tasks(codex, server):
    asked = len(requests(server))

    assert codex(read_program("codex.md", "sh", "")) == read_output("codex.md")

    assert (codex.work / "word.txt").read_text() == "heron\n"
    assert len(requests(server)) - asked == 3 + 1


@pytest.mark.parametrize("settings", [(), ("supports_websockets",)])
def test_a_conversation_of_three_turns_survives_a_connection_that_is_cut_in_the_middle_of_answers(
    codex, server, settings
):
    seen = len(server.log)

    with cutting(server.url, *CUTS) as connection:
        logs = [run(codex, turn, connection.url, settings) for turn in TURNS]

    assert connection.left == 0
    assert [said(log) for log in logs] == ["Noted.", "It says: 42", "The code word is heron."]
    assert (codex.work / "answer.txt").read_text() == "42\n"  # each command ran once
    usage = [log[-1]["usage"] for log in logs]
    assert 0 < usage[0]["input_tokens"] < usage[1]["input_tokens"]
    assert usage[1]["reasoning_output_tokens"] == 4
    lines = [line for line in server.log[seen:] if "'/v1/responses'" in line]
    assert all(("WEBSOCKET" if settings else "POST") in line for line in lines)
    assert any("previous_response_id" in line for line in lines) is bool(settings)
    assert [line for line in lines if "refused" in line or "failed" in line] == []
    assert server.ask("GET", "/v1/models/qwen")[1]["running"] == 0


def test_a_server_that_wants_a_token_is_sent_it(codex, guarded):
    seen = len(guarded.log)
    asked = {"model": "plain_text", "url": guarded.url, "settings": ["env_key", "supports_websockets"]}

    log = run(codex, "'Say hello.'", INTERLOCK_TOKEN=TOKEN, **asked)

    assert said(log) == "The capital of France is Paris."
    callers = ["caller='anna'" in line for line in guarded.log[seen:] if "WEBSOCKET" in line]
    assert callers == [True, True]  # one takes the prompt up


def test_a_model_that_loads_is_waited_for(codex, guarded, late):
    seen = len(guarded.log)
    loading = threading.Thread(target=lambda: (guarded.await_line("refused by model_loading", seen), late()))
    loading.start()

    log = run(codex, "'Say hello.'", guarded.url, ["env_key"], model="late", INTERLOCK_TOKEN=TOKEN)

    loading.join()
    assert said(log) == "The capital of France is Paris."
    assert [line for line in log if line["type"] == "error"] == []


def test_an_answer_cut_by_its_limit_ends_the_turn(codex, guarded):
    log = run(codex, "'Hello.'", guarded.url, ["env_key"], 1, model="length_stop", INTERLOCK_TOKEN=TOKEN)

    assert log[-1]["error"]["message"] == "Incomplete response returned, reason: max_output_tokens"


def test_a_model_that_is_not_there_ends_the_turn_at_once(codex, server):
    log = run(codex, "'Say hello.'", server.url, (), 1, model="nowhere")

    assert "is not loaded; the models are: qwen." in log[-1]["error"]["message"]
    assert "".join(server.log).count("model='nowhere': refused by model_unknown") == 1


def run(codex, turn, url, settings=(), code=0, **given):
    printed = codex(f"{EXEC} {turn} </dev/null", code, url=url, settings=settings, **given)
    return [json.loads(line) for line in printed.splitlines()]


def requests(server):
    return [line for line in server.log if "POST '/v1/responses'" in line]


def said(log):
    assert log[-1]["type"] == "turn.completed", log
    return log[-2]["item"]["text"]
