"""The public acceptance tests of POST /v1/responses/compact."""

from tests.acceptance.requests import say
from tests.openapi import wire

TALK = [say("user", "The code word is heron."), say("assistant", "Noted.")]


def compacted(sensible):
    status, answer = sensible.server.ask(
        "POST", "/v1/responses/compact", {"model": sensible.model, "prompt_cache_key": "talk", "input": TALK}
    )
    assert status == 200, answer
    wire.check_compaction(answer)
    return answer


def test_compact_response(sensible):
    answer = compacted(sensible)

    assert answer["object"] == "response.compaction"
    assert [item["type"] for item in answer["output"]].count("compaction") == 1


def test_compact_missing_model(sensible):
    status, answer = sensible.server.ask("POST", "/v1/responses/compact", {"input": TALK})

    wire.check_error(answer)
    assert status in {400, 422}


def test_what_was_compacted_is_taken_as_input(sensible):
    window = compacted(sensible)["output"]

    answer = sensible.ask(input=[*window, say("user", "What was the code word?")])

    assert answer["status"] == "completed"
    assert answer["output"]
