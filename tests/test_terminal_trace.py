"""`interlock trace` in a terminal, against a real server and against a database."""

import json
import os
import re
import time
from urllib.request import urlopen
from xml.etree import ElementTree as ET

import msgspec
import pytest

from handlers.mapping.to_trace import to_trace
from handlers.terminal.path import to_listing, to_path
from storage.store import open_store
from tests import terminal
from tests.live import scripted, serving
from tests.storage.samples import moved
from tests.storage.samples import trace as kept

pytestmark = pytest.mark.usefixtures("bare")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    arguments, env = scripted(str(tmp_path_factory.mktemp("trace") / "responses.duckdb"))
    with serving(*arguments, **env) as server:
        server.ask_until(200, "GET", "/health")
        yield server


@pytest.fixture
def file(tmp_path):
    """Make a database of three requests: one answered, one refused, one failed."""
    path = str(tmp_path / "responses.duckdb")
    route, failing = ("route_found", "ROUTING", "VALIDATING", 0.1), ("decode_failed", "DISPATCHING", "FAILING", 5.0)
    store = open_store(path)
    store.record(kept("ex_1", status=None, ended_at=1_750_000_000))
    store.record(
        kept("ex_2", state="REFUSED", event="model_loading", status=503, ended_at=1_750_000_060, response_id=None,
             **moved(route, ("model_loading", "BINDING", "REFUSED", 0.2)), facts="{}")
    )  # fmt: skip
    store.record(
        kept("ex_3", state="FAILED", event="failure_sent", status=None, ended_at=1_750_000_120.5, response_id="resp_3",
             model="large", facts='{"ahead":0}',
             **moved(route, failing, ("failure_sent", "FAILING", "FAILED", 1.0)))
    )  # fmt: skip
    store.close_now()
    return path


def run(*arguments):
    return terminal.run("trace", *arguments)


def answered(server, **body):
    """Have a request answered, and wait until its trace is kept; gives the response and its trace."""
    response = server.ask("POST", "/v1/responses", {"model": "plain_text", "input": "Hello", **body})[1]
    until = time.monotonic() + 60
    while time.monotonic() < until:
        page = server.ask("GET", f"/interlock/exchanges?response_id={response['id']}&state=DONE")[1]
        if page["data"] and page["data"][0]["ended_at"]:
            return response, page["data"][0]
    raise AssertionError(page)


@pytest.mark.parametrize("by", ["id", "response_id"])
def test_a_path_is_shown_by_the_id_of_its_exchange_or_its_response(server, by):
    response, trace = answered(server)

    ended = run(trace[by], "--url", server.url)

    title, *path = ended.stdout.splitlines()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert title == f"{trace['id']}  POST /v1/responses  plain_text  {response['id']}"
    blank = path.index("")
    assert path[0].split()[::3] == ["ROUTING", "route_found"]
    assert [line.split()[0] for line in path[:blank]][-2:] == ["PERSISTING", "DONE"]
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in path[blank + 1 :]}
    assert told.keys() == {"began", "queue", "prompt", "answer", "row"}
    assert told["queue"] == "0 waited before it, 0 were decoding"
    assert re.fullmatch(r"\d+ tokens, 0 of them cached", told["prompt"])
    assert re.fullmatch(r"\d+ tokens, the first after [\d.]+ ms, then [\d.]+ tokens/s", told["answer"])
    assert re.fullmatch(r"written in [\d.]+ ms", told["row"])


def test_a_refusal_is_shown_with_the_sentence_of_its_row(server):
    refused = server.ask("POST", "/v1/responses", {"model": "plain_text", "input": []})[1]["error"]["message"]
    (listed,) = json.loads(run("--event", "input_empty", "--limit", "1", "--json", "--url", server.url).stdout)["data"]

    ended = run(listed["id"], "--url", server.url)

    assert ended.stdout.splitlines()[-1].split(maxsplit=1) == [
        "why",
        f"400 by input_empty, code invalid_value: {refused}",
    ]


def test_a_refusal_names_no_model_that_is_not_served(server):
    server.ask("POST", "/v1/responses", {"model": "narrator", "input": "Hi"})
    (listed,) = json.loads(run("--event", "model_unknown", "--limit", "1", "--json", "--url", server.url).stdout)[
        "data"
    ]

    ended = run(listed["id"], "--url", server.url)

    assert "Model {model} is not loaded" in ended.stdout


def test_a_path_as_json_is_what_the_server_tells(server):
    _, trace = answered(server)

    assert json.loads(run(trace["id"], "--json", "--url", server.url).stdout) == trace


def test_a_path_is_drawn_into_a_file(server, tmp_path):
    _, trace = answered(server)
    file = tmp_path / "path.svg"

    ended = run(trace["id"], "--svg", str(file), "--url", server.url)

    assert ended.exit_code == 0
    assert ET.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own text
    with urlopen(f"{server.url}/interlock/exchanges/{trace['id']}.svg") as lit:  # noqa: S310  our own server
        assert file.read_text() == lit.read().decode()
    nowhere = run(trace["id"], "--svg", str(tmp_path / "no" / "path.svg"), "--url", server.url)
    assert (nowhere.exit_code, nowhere.stdout) == (1, "")
    assert nowhere.stderr.startswith(f"interlock: {tmp_path}/no/path.svg could not be written (")


def test_the_last_requests_are_listed(server):
    answered(server)
    server.ask("GET", "/nowhere")

    ended = run("--url", server.url, "--limit", "2")

    head, first, second = ended.stdout.splitlines()
    assert head.split() == ["ended", "id", "state", "status", "event", "model", "ms"]
    assert first.split()[3:7] == ["REFUSED", "404", "route_unknown", "-"]
    assert second.split()[3:7] == ["DONE", "-", "row_written", "plain_text"]
    assert "raise --limit" in run("--url", server.url, "--limit", "1").stderr


def test_a_list_is_picked_by_what_is_asked(file):
    def ids(*picked):
        return [one["id"] for one in json.loads(run("--db", file, "--json", *picked).stdout)["data"]]

    assert ids() == ["ex_3", "ex_2", "ex_1"]
    assert ids("--event", "model_loading") == ["ex_2"]
    assert ids("--state", "failed") == ["ex_3"]
    assert ids("--status", "503") == ["ex_2"]
    assert ids("--model", "large") == ["ex_3"]
    assert ids("--since", "2025-06-15T15:07:00Z") == ["ex_3", "ex_2"]
    assert ids("--since", "10m") == []
    assert ids("--since", "100000d") == ["ex_3", "ex_2", "ex_1"]
    assert ids("--limit", "1") == ["ex_3"]


def test_a_failure_is_listed_by_what_led_to_it(file):
    lines = run("--db", file).stdout.splitlines()

    assert [line.split()[3:7] for line in lines[1:]] == [
        ["FAILED", "-", "decode_failed", "large"], ["REFUSED", "503", "model_loading", "tiny"],
        ["DONE", "-", "row_written", "tiny"],
    ]  # fmt: skip


def test_one_503_is_explained_from_the_database(file):
    ended = run("ex_2", "--db", file)

    path = [line.split() for line in ended.stdout.splitlines()[1:]]
    assert path[:2] == [["ROUTING", "0.1", "ms", "route_found"], ["BINDING", "0.2", "ms", "model_loading"]]
    assert ended.stdout.splitlines()[-1].split(maxsplit=1) == [
        "why", "503 by model_loading, code model_loading: Model 'tiny' is still loading; retry in 2 s.",
    ]  # fmt: skip


def test_a_list_without_a_request_says_so(file):
    ended = run("--db", file, "--status", "401")

    assert (ended.exit_code, ended.stdout) == (0, "No request is to be found.\n")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["ex_0"], 1, "interlock: exchange 'ex_0' left no trace in {file}, or none that is still kept."),
        (["resp_0"], 1, "interlock: no exchange that made 'resp_0' left a trace, or none that is still kept."),
        (["--event", "queue_fool"], 1,
         "interlock: invalid value for --event: no row of a request's tables has the event 'queue_fool'."),
        (["--state", "tired"], 1,
         "interlock: invalid value for --state: no row of a request's tables has the state 'TIRED'."),
        (["--since", "10 fortnights"], 1,
         "interlock: invalid value for --since: '10 fortnights' is neither Unix seconds nor a time such as {time}."),
        (["--limit", "0"], 2, "Error: Invalid value for '--limit': 0 is not in the range 1<=x<=1000."),
        (["--status", "many"], 2, "Error: Invalid value for '--status': 'many' is not a valid integer range."),
        (["ex_1", "--event", "queue_full"], 2, "Error: --event picks from the list, which is shown without an ID."),
        (["--svg", "path.svg"], 2, "Error: --svg draws one path; give its ID."),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_one_sentence(file, arguments, code, sentence):
    ended = run(*arguments, "--db", file)

    assert (ended.exit_code, ended.stdout) == (code, "")
    assert ended.stderr.splitlines()[-1] == sentence.format(file=file, time="2026-01-31T12:00:00Z")


def test_a_server_says_what_it_does_not_know(server):
    unknown, wrong = run("ex_0", "--url", server.url), run("--event", "queue_fool", "--url", server.url)

    assert (unknown.exit_code, wrong.exit_code) == (1, 1)
    assert unknown.stderr.startswith(
        "interlock: Exchange 'ex_0' left no trace here, or none that is still kept: traces"
    )
    assert wrong.stderr.startswith("interlock: Invalid value for `event`: ")


def test_the_database_is_read_where_no_server_answers_and_only_there(file, server, monkeypatch):
    monkeypatch.setenv("INTERLOCK_PORT", "1")
    monkeypatch.setenv("INTERLOCK_DB", file)

    assert run("ex_1").stdout.startswith("ex_1  POST /v1/responses  tiny  resp_1")
    assert run("resp_3").stdout.startswith("ex_3  POST /v1/responses  large  resp_3")
    assert len(run().stdout.splitlines()) == 4
    assert run("ex_1", "--url", server.url).exit_code == 1
    assert run("--url", "http://127.0.0.1:1").stderr.startswith("interlock: no server answers at http://127.0.0.1:1;")


def test_a_database_that_a_server_has_open_is_one_sentence(tmp_path):
    file = str(tmp_path / "responses.duckdb")
    store = open_store(file)

    held = run("ex_1", "--db", file)
    store.close_now()

    assert held.stderr.startswith(f"interlock: {file} is in use by")


def test_no_server_and_no_database_is_one_sentence(tmp_path, monkeypatch):
    missing = str(tmp_path / "none.duckdb")
    monkeypatch.setenv("INTERLOCK_PORT", "1")
    monkeypatch.setenv("INTERLOCK_DB", missing)

    ended = run("ex_1")

    assert ended.stderr == f"interlock: no server answers, and there is no database at {missing}.\n"
    assert not os.path.exists(missing)  # noqa: PTH110 - a path as text


def test_a_request_under_way_says_how_far_it_is():
    granted = ("slot_granted", "QUEUED", "DISPATCHING", 2.0)
    row = kept(state="DISPATCHING", event="slot_granted", status=None, ended_at=1000.0, **moved(granted))
    under_way = to_trace(msgspec.structs.replace(row, facts='{"ahead":2,"running":8}'), in_state=1.5)

    path, listed = to_path(under_way), to_listing([under_way])

    assert under_way.started_at == 998.498
    assert "  DISPATCHING  1500.0 ms  so far" in path
    assert path[-1].split(maxsplit=1) == ["queue", "2 waited before it, 8 were decoding"]
    assert listed[1].startswith("under way  ex_1  DISPATCHING  -")
    assert listed[1].endswith("1502.0")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("row_late", "not yet written when its exchange ended"), ("row_lost", "lost: it could not be written"),
        ("row_unwanted", "none wanted"),
    ],
)  # fmt: skip
def test_what_became_of_the_row_is_said_in_words(event, words):
    row = kept(event=event, **moved((event, "PERSISTING", "DONE", 5.0)))

    assert to_path(to_trace(row))[-1].split(maxsplit=1) == ["row", words]
