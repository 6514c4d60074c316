import mlx.core as mx
import pytest

from engine.channel import Channel
from engine.pieces import Finish, Reasoning, Sampling, Text, ToolCall
from engine.sequence import Job, Sequence, Stops
from tests.engine.tiny import END, THINK, load_tokenizer, make_tokenizer, tokens_of

TOOLS = [{"type": "function", "function": {"name": "time", "description": "", "parameters": {}}}]
START = 0
CALL = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'


class Told:
    """A sequence that is told its tokens by a test, and the pieces that its reader got."""

    def __init__(self, tokenizer=None, tools=None, **sampling):
        self.tokenizer = tokenizer or make_tokenizer()
        self.sampling = Sampling(**({"temperature": 0, "top_p": 1, "max_tokens": 1000} | sampling))
        self.channel = Channel()
        self.sequence = Sequence(Job([START], self.sampling, tools, "", self.channel), self.tokenizer)
        self.has_ended = False

    def hear(self, text, reason=None):
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        for n, token in enumerate(tokens, 1):
            if not self.has_ended:
                self._read(token, reason if n == len(tokens) else None)
        return self

    def end(self):
        if not self.has_ended:
            self._read(END, "stop")
        return self

    def _read(self, token, reason):
        logprobs = mx.zeros(END + 1 + len(THINK)) - mx.log(mx.array(END + 1 + len(THINK)))
        self.has_ended = self.sequence.read(token, logprobs, reason)

    @property
    def pieces(self):
        return list(self.channel._unread)

    @property
    def text(self):
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Text))

    @property
    def finish(self):
        assert self.channel._is_closed
        return self.pieces[-1]


@pytest.fixture
def thinking(tmp_path):
    return load_tokenizer(tmp_path)


# Ends


async def test_an_end_of_sequence_shows_nothing_and_is_counted():
    told = Told().hear("ab").end()

    assert told.pieces == [Text("a"), Text("b"), Finish(reason="stop", prompt_tokens=1, completion_tokens=3)]
    assert told.has_ended


async def test_the_last_token_of_a_limit_is_shown():
    told = Told().hear("ab", "length")

    assert told.pieces == [Text("a"), Text("b"), Finish(reason="length", prompt_tokens=1, completion_tokens=2)]


async def test_a_reader_that_left_is_told_nothing_more():
    told = Told().hear("a")
    told.channel.cancel()

    told.hear("b").end()

    assert told.pieces == []
    assert told.has_ended


async def test_what_is_left_of_the_limit():
    told = Told(max_tokens=5)
    assert told.sequence.room == 5

    told.hear("abc")

    assert (told.sequence.room, told.sequence.generated) == (2, 3)


# Stop texts


async def test_an_answer_ends_before_a_stop_text_of_several_tokens():
    told = Told(stop=("END",)).hear("sayENDmore")

    assert told.text == "say"
    assert told.finish == Finish(reason="stop", prompt_tokens=1, completion_tokens=6)


async def test_a_stop_text_is_held_back_until_it_is_known_to_be_none():
    told = Told(stop=("END",)).hear("aEN")
    assert told.pieces == [Text("a")]

    told.hear("T")

    assert told.pieces == [Text("a"), Text("ENT")]


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_the_beginning_of_a_stop_text_is_shown_when_the_answer_ends_there(reason):
    told = Told(stop=("END",))

    told.hear("aEN", None if reason == "stop" else reason).end()

    assert told.text == "aEN"
    assert told.finish.reason == reason


@pytest.mark.parametrize(
    ("stop", "said", "text"),
    [
        (("ab", "abc"), "xabcd", "x"),
        (("abc", "ab"), "xabcd", "x"),
        (("abc", "b"), "xabcd", "xa"),
        (("abcd", "bc"), "xabce", "xa"),
        (("aab",), "aaaab!", "aa"),
        (("é",), "caféine", "caf"),
        (("", "c"), "abcd", "ab"),
        (("",), "abcd", "abcd"),
        (("\n\n",), "a\nb\n\nc", "a\nb"),
        ((" ",), "ab cd", "ab"),
    ],
)
async def test_the_first_stop_text_counts(stop, said, text):
    told = Told(stop=stop).hear(said).end()

    assert told.text == text
    assert told.finish.reason == "stop"


async def test_a_stop_text_at_the_limit_is_a_stop():
    assert Told(stop=("b",)).hear("ab", "length").finish.reason == "stop"


async def test_a_stop_text_in_reasoning_is_none(thinking):
    told = Told(thinking, stop=("END",)).hear("<think>an END</think>out").hear("ENDmore")

    assert "".join(piece.text for piece in told.pieces if isinstance(piece, Reasoning)) == "an END"
    assert told.text == "out"
    assert told.finish.reason == "stop"


async def test_no_call_comes_after_a_stop_text(thinking):
    told = Told(thinking, TOOLS, stop=("END",)).hear(f"a END{CALL}").end()

    assert told.text == "a "
    assert not any(isinstance(piece, ToolCall) for piece in told.pieces)


async def test_what_was_held_back_comes_before_a_call(thinking):
    told = Told(thinking, TOOLS, stop=("END",)).hear(f"a EN{CALL}").hear("D").end()

    call = ToolCall(name="time", arguments="{}")
    assert told.pieces[:-1] == [Text("a"), Text(" "), Text("EN"), call, Text("D")]


def test_stops_give_nothing_once_met():
    stops = Stops(("b",))

    assert (stops.read("abc"), stops.is_met) == ("a", True)
    assert (stops.read("x"), stops.flush()) == ("", "")


# Log probabilities


def attributed(told):
    return [
        (piece.text, [chosen.token for chosen in piece.logprobs]) for piece in told.pieces if isinstance(piece, Text)
    ]


async def test_no_log_probabilities_are_told_unless_asked_for():
    assert attributed(Told().hear("ab").end()) == [("a", []), ("b", [])]


async def test_log_probabilities_go_with_their_text():
    told = Told(top_logprobs=2, stop=("END",)).hear("aEN😀b").end()

    assert attributed(told) == [("a", ["a"]), ("EN😀", ["E", "N", *["\ufffd"] * 4]), ("b", ["b"])]
    spelled = [bytes(one.bytes) for piece in told.pieces[:-1] for one in piece.logprobs]
    assert b"".join(spelled).decode() == told.text
    assert all(len(one.top_logprobs) == 2 for piece in told.pieces[:-1] for one in piece.logprobs)


async def test_log_probabilities_of_reasoning_and_of_calls_are_not_told(thinking):
    told = Told(thinking, TOOLS, top_logprobs=0).hear(f"<think>Hm.</think>\n\nOK{CALL}\nBye").end()

    assert attributed(told) == [(letter, [letter]) for letter in "OKBye"]


async def test_log_probabilities_of_a_stop_text_and_of_the_end_are_not_told():
    told = Told(top_logprobs=0, stop=("END",)).hear("aEND").end()
    assert attributed(told) == [("a", ["a"])]

    assert attributed(Told(top_logprobs=0).hear("a").end()) == [("a", ["a"])]


async def test_log_probabilities_that_cannot_be_told_cost_nothing_else():
    told = Told(top_logprobs=20)
    told.has_ended = told.sequence.read(tokens_of("a")[0], mx.zeros(END + 1) - mx.inf, None)

    assert told.text == "a"


# Being put back


async def test_a_rewound_sequence_chooses_the_same_place_again():
    told = Told(temperature=1, seed=3)
    told.sequence.sampler.place = 9

    told.hear("abc").sequence.rewind(None)

    assert told.sequence.sampler.place == 3


async def test_only_the_first_time_it_joins_is_told():
    told = Told()
    begun = []
    told.channel.begin = begun.append

    told.sequence.join(5)
    told.hear("a").sequence.join(7)
    told.sequence.breaks = 1
    told.sequence.join(0)

    assert begun == [5]
    assert told.sequence.cached_tokens == 5


async def test_it_has_settled_once_it_decoded_as_it_is():
    told = Told()
    told.sequence.join(0)
    told.hear("ab")
    assert not told.sequence.is_settled  # it has not been prefilled

    told.sequence.is_prefilled = True
    assert told.sequence.is_settled
    told.sequence.join(3)
    told.sequence.is_prefilled = True
    assert not told.hear("c").sequence.is_settled
