"""One exchange: its sentence, its path lit with times, what was measured."""

import re
from datetime import datetime

import pytest

from tests.console.browsing import expect, facts, hash_of, row
from tests.console.names import HOSTILE
from tests.console.seen import await_decode


def lit(page):
    """Read the moves that the drawing lights, by event and the state left."""
    expect(page.locator("#one-drawing svg")).to_be_visible()
    edges = page.locator("#one-drawing .edge.lit").all()
    return {(edge.get_attribute("data-event"), edge.get_attribute("data-from")) for edge in edges}


def path_of(served, name):
    return [(move["event"], move["from"]) for move in served.trace(name)["moves"]]


def steps(page):
    texts = page.locator("#one-path li").all_inner_texts()
    return [text.split("\n")[0] for text in texts]


def test_a_503_is_explained_by_its_row_and_its_path(open_page, served):
    page = open_page("view=exchanges&status=503")

    row(page, served.ids["503"]).get_by_role("link").click()

    assert hash_of(page) == {"exchange": served.ids["503"]}
    expect(page.locator("#one-outcome")).to_have_text("refused 503")
    expect(page.locator("#one-why")).to_be_visible()
    expect(page.locator("#one-sentence")).to_have_text(
        "The write of {previous_response_id} did not settle within 200 ms; retry with the same id."
    )
    expect(page.locator("#one-row")).to_have_text("The row write_unsettled of the table exchange says so.")
    assert lit(page) == set(path_of(served, "503"))
    assert steps(page) == ["ROUTING", "VALIDATING", "BINDING", "RESOLVING", "AWAITING_WRITE", "REFUSED"]
    waited = page.locator("#one-path li").nth(4)
    expect(waited.locator(".number")).to_have_text(re.compile(r"^2\d\d ms$"))
    expect(waited.locator(".quiet")).to_have_text("waiting for a write in flight")
    expect(waited.locator(".event")).to_have_text("write_unsettled")
    noted = page.locator("#one-drawing .pill.time text").all_text_contents()
    assert len(noted) == 5
    assert waited.locator(".number").inner_text() in noted
    # what refused it is in sight at once
    expect(page.locator('#one-drawing .edge.lit[data-event="write_unsettled"]')).to_be_in_viewport()
    assert facts(page.locator("#one"))["Retry after"] == "1 s"


def test_an_answer_tells_what_was_measured(open_page, served):
    trace = served.trace("chained")
    prompt = trace["facts"]["prompt_tokens"]
    page = open_page(f"exchange={served.ids['chained']}")
    assert lit(page) == set(path_of(served, "chained"))

    told = facts(page.locator("#one"))

    expect(page.locator("#one-outcome")).to_have_text("done")
    expect(page.locator("#one-why")).to_be_hidden()
    began = datetime.fromisoformat(told["Began"]).timestamp()
    assert began == pytest.approx(trace["started_at"], abs=0.001)
    assert told["Model"] == "plain"
    assert told["Response"] == trace["response_id"]
    assert told["In the queue"] == "nobody ahead, 0 decoding"
    assert (told["Prompt tokens"], told["of them cached"]) == (str(prompt), f"3 ({round(300 / prompt)} %)")
    assert told["Output tokens"] == "5"
    assert told["First token"].startswith("after ")
    assert told["Row"].startswith("on the disk after ")


def test_a_late_write_is_told(open_page, served):
    page = open_page(f"exchange={served.ids['late']}")

    told = re.compile(r"^late: not on the disk after [23]\d\d ms, and went on by itself$")
    expect(page.locator("#one-facts dd").filter(has_text=told)).to_be_visible()


def test_a_failure_tells_the_sentence_of_its_row(open_page, served):
    page = open_page(f"exchange={served.ids['failed']}")

    expect(page.locator("#one-outcome")).to_have_text("failed")
    expect(page.locator("#one-sentence")).to_have_text(
        "The model failed while decoding; the server's log names exchange {exchange}."
    )
    expect(page.locator("#one-row")).to_have_text(
        "The row decode_failed of the table exchange says so, with the code server_error."
    )


def test_a_full_queue_tells_how_many_waited(open_page, served):
    page = open_page(f"exchange={served.ids['429']}")

    expect(page.locator("#one-sentence")).to_have_text(
        "2 requests are waiting for model {model} (limit 2); try again in 1s."
    )
    assert facts(page.locator("#one"))["In the queue"] == "2 ahead, 1 decoding"


@pytest.mark.parametrize("given", ["ex_gone", HOSTILE])
def test_an_exchange_that_left_no_trace_is_told_as_text(open_page, given):
    page = open_page()
    page.get_by_label("Id of an exchange or a response").fill(given)

    page.keyboard.press("Enter")

    expect(page.locator("#one-fault")).to_have_text(
        f"Exchange {given!r} left no trace here, or none that is still kept: traces are kept for 604800 s."
    )
    expect(page.locator("#one-id")).to_have_text(given)
    assert page.locator("main img").count() == 0


def test_a_response_is_found_by_its_id(open_page, served):
    response_id = served.trace("chained")["response_id"]
    page = open_page()

    page.get_by_label("Id of an exchange or a response").fill(f" {response_id} ")
    page.get_by_role("button", name="Find").click()

    expect(row(page, served.ids["chained"])).to_be_visible()
    expect(page.locator("#found")).to_have_text("1 shown")


def test_one_under_way_is_followed_until_its_end(open_new, served):
    with served.server.open_stream(model="stepped", input="Hello", stream=True):
        page = open_new(f"exchange={await_decode(served.server, 'stepped')}", is_timed=True)
        expect(page.locator("#one-outcome")).to_have_text("under way, DISPATCHING")
        expect(page.locator("#said")).to_have_text("")

    page.clock.run_for(2000)

    expect(page.locator("#one-outcome")).to_have_text("given up")
    expect(page.locator("#said")).to_have_text("given up by client_gone")
    assert steps(page)[-2:] == ["DISPATCHING", "ABANDONED"]


FOREIGN = {
    "<script>": "<script>alert(1)</script>",
    "<g> with onload": '<g onload="alert(1)"/>',
    "<rect> with style": '<rect style="fill:red"/>',
    "<foreignObject>": "<foreignObject/>",
    "<text> with href": '<text href="javascript:alert(1)">x</text>',
    "<img> with src": '<img xmlns="http://www.w3.org/1999/xhtml" src="x"/>',
    "<style>": "<style>g{}</style><style>g{}</style>",
}


def test_a_drawing_of_anything_else_is_not_put_in_the_page(open_new, served):
    marks = []

    def draw(route):
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{marks[-1]}</svg>'
        route.fulfill(body=svg, content_type="image/svg+xml")

    page = open_new("view=pace", is_policed=False)
    page.route("**/interlock/exchanges/*.svg", draw)
    for named, mark in FOREIGN.items():
        marks.append(mark)
        page.goto(f"{served.server.url}/console#exchange={served.ids['503']}")

        expect(page.locator("#news")).to_contain_text(f"The drawing is not shown: it has {named}")
        expect(page.locator("#one-sentence")).to_be_visible()
        assert page.locator("#one-drawing svg").count() == 0
        page.goto(f"{served.server.url}/console#view=pace")
        expect(page.locator("#news")).to_be_hidden()
