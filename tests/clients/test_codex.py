"""Codex CLI, set up as its page says, works on a task."""

import json

import pytest

from tests.clients.pages import read_output, read_program

pytestmark = pytest.mark.timeout(300)  # Codex is large


def test_the_command_of_the_page_does_the_task(codex, server):
    asked = len(_requests(server))

    assert codex(read_program("codex.md", "sh", "")) == read_output("codex.md")

    assert (codex.work / "word.txt").read_text() == "heron\n"
    assert len(_requests(server)) - asked == 3


def test_a_conversation_of_three_turns_with_a_command(codex):
    turns = [
        "'The code word is heron.'",
        "resume --last 'Run `printf 42 > answer.txt`.'",
        "resume --last 'What was the code word?'",
    ]
    command = "codex exec --json --skip-git-repo-check --sandbox workspace-write"

    logs = [[json.loads(line) for line in codex(f"{command} {turn} </dev/null").splitlines()] for turn in turns]

    assert [said(log) for log in logs] == ["Noted.", "Done.", "The code word is heron."]
    assert (codex.work / "answer.txt").read_text() == "42"
    usage = [log[-1]["usage"] for log in logs]
    assert 0 < usage[0]["input_tokens"] < usage[1]["input_tokens"]
    assert usage[1]["reasoning_output_tokens"] == 2


def test_a_model_that_is_not_there_ends_the_turn_at_once(codex, server):
    log = codex("codex exec --json --skip-git-repo-check 'Say hello.' </dev/null", code=1, model="nowhere")

    assert "is not loaded; the models are: qwen." in json.loads(log.splitlines()[-1])["error"]["message"]
    assert "".join(server.log).count("model='nowhere': refused by model_unknown") == 1


def _requests(server):
    return [line for line in server.log if "POST '/v1/responses'" in line]


def said(log):
    assert log[-1]["type"] == "turn.completed", log
    return log[-2]["item"]["text"]
