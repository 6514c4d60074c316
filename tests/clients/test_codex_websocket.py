"""Codex over WebSocket: after a warm-up it sends only what is new."""

import json

from tests.clients.test_codex import said

SOCKETS = "-c model_providers.interlock.supports_websockets=true"
TASK = "Run `printf 42 > answer.txt`, then `cat answer.txt`, and tell me what it says."


def test_a_task_goes_over_one_socket(codex, server):
    posted = "".join(server.log).count("POST '/v1/responses'")

    printed = codex(f"codex exec --json --skip-git-repo-check --sandbox workspace-write {SOCKETS} '{TASK}' </dev/null")

    log = [json.loads(line) for line in printed.splitlines()]
    assert said(log) == "It says: 42"
    assert (codex.work / "answer.txt").read_text() == "42"
    assert "".join(server.log).count("POST '/v1/responses'") == posted
