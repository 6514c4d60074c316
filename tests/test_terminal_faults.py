"""What a person meets in a terminal: help that can be read, completion, and faults told in one sentence."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager

import click
import pytest

from handlers.cli import cli
from storage.store import open_store
from tests.live import ROOT, launched, scripted, serving
from tests.terminal import run

pytestmark = pytest.mark.usefixtures("bare")

COMMANDS = sorted(cli.commands)
ASKING = [["models"], ["trace", "ex_1"], ["chat"], ["chat", "--model", "a"]]
TOKEN = "tök3n"  # noqa: S105 - for these tests alone


def said(ended):
    """Give the one sentence that a command ended with."""
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended.output
    assert ended.stderr.startswith("interlock: ")
    assert "Error" not in ended.stderr
    return ended.stderr


# Help


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_fits_a_terminal_and_explains_every_option(command):
    ended = run(*command, "--help", terminal_width=80)

    assert ended.exit_code == 0
    assert max(map(len, ended.stdout.splitlines())) <= 80
    params = (cli.commands[command[0]] if command else cli).params
    assert [option.name for option in params if isinstance(option, click.Option) and not option.help] == []


def test_the_list_of_commands_cuts_no_sentence():
    listed = run("--help", terminal_width=80).stdout.partition("Commands:\n")[2].partition("\n\n")[0]

    assert re.findall(r"^  (\w+) +(\w.*)$", listed, re.MULTILINE) == [
        (name, cli.commands[name].help.partition("\n")[0]) for name in COMMANDS
    ]


def test_the_readme_names_every_command():
    assert set(re.findall(r"^\| `interlock (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)) == set(COMMANDS)


# Completion

COMPLETE = """
set -eu
source "$SCRIPT"
COMP_WORDS=({words}) COMP_CWORD={last}
_interlock_completion interlock
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def completed(tmp_path_factory):
    """Give what bash completes the last of some words to, by the script of the README."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("bin")
    command, script = folder / "interlock", folder / "complete.bash"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m handlers.cli "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "SCRIPT": str(script)}
    shown = subprocess.run(
        [command],
        env={**env, "_INTERLOCK_COMPLETE": "bash_source"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    if "not supported" in shown.stderr:
        pytest.skip(shown.stderr.strip())
    script.write_text(shown.stdout)

    def complete(*words):
        text = COMPLETE.format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1)
        ended = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=True)  # noqa: S607
        return ended.stdout.split()

    return complete


def test_bash_completes_commands_options_and_choices(completed):
    assert completed("interlock", "") == COMMANDS
    assert completed("interlock", "mo") == ["models"]
    assert completed("interlock", "serve", "--t") == ["--token"]
    assert completed("interlock", "serve", "--log", "") == ["text", "json"]


# Faults

FOREIGN = {
    "another_server": '{"status": "ok"}',
    "a_list": "[]",
    "other_models": '{"models": [], "data": 3}',
    "words": "Hi",
}


@contextmanager
def foreign(body, status):
    """Have something else answer than Interlock."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the name that the base class calls

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", FOREIGN)
def test_what_is_not_interlock_is_told_so(body, status):
    with foreign(FOREIGN[body], status) as url:
        sentences = [said(run(*command, "--url", url, input="Hello")) for command in ASKING]

    assert [sentence for sentence in sentences if url not in sentence] == []
    assert [sentence for sentence in sentences if "token" in sentence] == []


@pytest.mark.parametrize("command", ASKING)
def test_no_server_and_a_wrong_token_are_one_sentence(command, guarded):
    assert "no server answers" in said(run(*command, "--url", "http://127.0.0.1:1", input="Hello"))
    wrong = said(run(*command, "--url", guarded, "--token", "guess", input="Hello"))
    absent = said(run(*command, "--url", guarded, input="Hello"))

    assert wrong == "interlock: The token is none of this server's. (401)\n"
    assert "token" in absent


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    arguments, env = scripted(str(tmp_path_factory.mktemp("guarded") / "responses.duckdb"))
    with serving(*arguments, **env, INTERLOCK_TOKEN=TOKEN) as server:
        yield server.url


@pytest.mark.parametrize("place", ["folder", "text", "under_a_file"])
@pytest.mark.parametrize("command", [["prepare"], ["trace", "ex_1", "--db"]])
def test_a_database_that_cannot_be_read_is_one_sentence(tmp_path, monkeypatch, command, place):
    (tmp_path / "text").write_text("Not a database.\n" * 1000)
    file = str({"folder": tmp_path, "text": tmp_path / "text", "under_a_file": tmp_path / "text" / "db"}[place])
    monkeypatch.setenv("INTERLOCK_DB", file)

    assert file in said(run(*command, *([file] if command[-1] == "--db" else [])))


def test_a_model_folder_that_is_none_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLOCK_DB", "none")
    monkeypatch.setenv("INTERLOCK_MODELS", f"mine={tmp_path}")

    assert f"'{tmp_path}' is not a model folder" in said(run("prepare"))


@pytest.mark.parametrize("folder", ["file", "file/folder"])
def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, folder):
    (tmp_path / "file").write_text("")

    assert "cannot be written" in said(run("diagrams", "--out", str(tmp_path / folder)))


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["serve", "--port", "65536"], "--port"),
        (["serve", "--log", "xml"], "--log"),
        (["serve", "stray"], "stray"),
        (["models", "stray"], "stray"),
        (["config", "stray"], "stray"),
        (["diagrams", "--nonsense"], "--nonsense"),
        (["prepare", "--db", "x"], "--db"),
        (["trace", "--nonsense"], "--nonsense"),
        (["chat", "--model"], "--model"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_wrong_option_exits_with_two_and_names_it(arguments, option):
    ended = run(*arguments)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert option in ended.stderr.splitlines()[-1]


def test_an_address_of_another_machine_is_told_at_once():
    elsewhere = ("--host", "203.0.113.7")
    with launched("handlers.cli", "serve", "--port", "0", "--no-store", "--token", TOKEN, *elsewhere) as server:
        assert server.ended() == 1

    assert "interlock: 203.0.113.7:0 cannot be used (" in server.log[-1]
    assert "assign requested address" in server.log[-1]


@pytest.mark.parametrize("word", [["ex_\udcff"], ["resp_\udcff"], ["--model", "\udcff"], ["--since", "\udcff"]])
@pytest.mark.parametrize("where", ["url", "db"])
def test_words_that_are_no_text_name_no_trace(tmp_path, where, word):
    file = str(tmp_path / "responses.duckdb")
    open_store(file).close_now()
    found = run("trace", *word, f"--{where}", {"url": "http://127.0.0.1:1", "db": file}[where])

    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == (0 if word[0] == "--model" and where == "db" else 1)
