"""Log probabilities: with each delta those of its tokens, and all of them once the text is whole."""

from engine.pieces import ChosenToken, Finish, LikelyToken, Text
from tests.sequences.laws import assert_laws, to_events


def chosen(token, logprob=-0.25):
    return ChosenToken(token, logprob, list(token.encode()), [LikelyToken(token, logprob, list(token.encode()))])


SCRIPT = [
    Text("Gr", [chosen("Gr")]),
    Text("ü", [ChosenToken("\N{REPLACEMENT CHARACTER}", -1.5, [0xC3], []), chosen("¼")]),
    Finish(reason="stop", prompt_tokens=1, completion_tokens=4),
]


async def test_a_stream_with_log_probabilities(client, engine, sse):
    engine.script = SCRIPT

    reply = await client.post(input="Hi", stream=True, top_logprobs=1, include=["message.output_text.logprobs"])

    events = to_events(reply.text)
    assert_laws(events)
    deltas = [entry for event in events if event["type"].endswith("text.delta") for entry in event["logprobs"]]
    done = next(event for event in events if event["type"] == "response.output_text.done")
    assert deltas == done["logprobs"] == events[-1]["response"]["output"][0]["content"][0]["logprobs"]
    assert events[-1]["response"]["top_logprobs"] == 1
    assert reply.text == sse


async def test_the_engine_is_asked_for_them(client, engine):
    engine.script = SCRIPT

    await client.post(input="Hi", top_logprobs=3)

    assert engine.decodes[0][1].top_logprobs == 3
