"""Codex CLI, set up as its page says, works on a task."""

import json
import os

import pytest

from tests.clients import installed
from tests.clients.pages import read_output, read_program


@pytest.fixture
def codex(server, tmp_path):
    """Run a command line that has `codex` in it, in an empty folder."""
    node = installed.find_node()
    config, home = read_program("codex.md", "toml", server.url), tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    home.mkdir()
    (home / "config.toml").write_text(config)
    path = f"{installed.MODULES / '.bin'}:{node.parent}:{os.environ['PATH']}"

    def run(command, **changes):
        (home / "config.toml").write_text(config.replace('"qwen"', json.dumps(changes.get("model", "qwen"))))
        return installed.run(
            "bash", "-c", command, cwd=work, PATH=path, HOME=str(home), CODEX_HOME=str(home), TMPDIR=str(tmp_path)
        )  # fmt: skip

    run.work = work
    return run


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

    assert [_said(log) for log in logs] == ["Noted.", "Done.", "The code word is heron."]
    assert (codex.work / "answer.txt").read_text() == "42"
    usage = [log[-1]["usage"] for log in logs]
    assert 0 < usage[0]["input_tokens"] < usage[1]["input_tokens"]
    assert usage[1]["reasoning_output_tokens"] == 2


def _requests(server):
    return [line for line in server.log if "POST '/v1/responses'" in line]


def _said(log):
    assert log[-1]["type"] == "turn.completed", log
    return log[-2]["item"]["text"]
