"""What goes on now: counts on a diagram, models, writes, pace."""

import re

from tests.console.browsing import expect, expect_among, expect_ids, facts, hash_of, moves
from tests.console.names import HOSTILE
from tests.console.seen import PAGED, answer

COMPLETED = PAGED + 2  # rows written in time: those of a page, of the continued and of the hostile one


def width(page, source, target):
    """Read how wide the traffic of a way is drawn."""
    flow = page.locator(f'#live-drawing .way[data-from="{source}"][data-to="{target}"] .flow')
    return float(flow.evaluate("node => getComputedStyle(node).strokeWidth").removesuffix("px"))


def tiles(page):
    expect(page.locator("#tiles li")).to_have_count(7)
    return {tile.split("\n")[1]: tile.split("\n")[0] for tile in page.locator("#tiles li").all_inner_texts()}


def test_a_way_is_as_wide_as_its_traffic_and_the_counts_are_text_too(open_page, served):
    page = open_page("view=live&seconds=3600")
    expect(page.locator("#moves tbody tr").first).to_be_visible()
    told = moves(page)

    assert told["row_written", "PERSISTING"] >= COMPLETED
    assert told["queue_full", "QUEUED"] == 1
    assert told["decode_failed", "DISPATCHING"] == 1
    assert width(page, "ROUTING", "VALIDATING") == 16
    assert width(page, "ROUTING", "VALIDATING") > width(page, "QUEUED", "REFUSED") > 3
    assert width(page, "RETRIEVING", "TELLING") == 0
    tallies = page.locator("#live-drawing .pill.tally text").all_text_contents()
    assert sorted(tallies) == sorted(str(count) for count in told.values())
    here = page.locator("#live-drawing .pill.here text").all_text_contents()
    assert sorted(here) == ["1 now", "2 now"]


def test_tiles_sum_up_and_lead_on(open_page, served):
    page = open_page("view=live&seconds=3600")

    shown = tiles(page)
    page.get_by_role("link", name="refused").click()

    assert (shown["under way"], shown["waiting for a model"], shown["failed"]) == ("3", "2", "1")
    assert hash_of(page) == {"view": "exchanges", "state": "REFUSED", "last": "3600"}
    expect_among(page, {served.ids["503"], served.ids["429"], served.ids["unrouted"]})


def test_more_under_way_than_is_told_of_is_no_exact_number(open_page):
    page = open_page("view=pace")
    page.route("**/interlock/live*", lambda route: route.fulfill(json=grown(route.fetch().json())))

    page.get_by_role("link", name="Live").click()

    assert tiles(page)["under way"] == "100 or more"


def grown(told):
    return {**told, "under_way": told["under_way"][:1] * 100}


def test_a_move_leads_to_its_exchanges(open_page, served):
    page = open_page("view=live&seconds=3600")

    page.locator("#moves").get_by_role("link", name="queue_full").click()

    expect_ids(page, {served.ids["429"]})


def test_another_machine_and_window_are_chosen_and_counted_on(open_new, served):
    page = open_new("view=live", is_timed=True)
    page.get_by_label("Machine").select_option("write")
    page.get_by_label("Moves of the last").select_option("hour")

    expect(page.locator("#live-drawing svg > title")).to_have_text(re.compile("^write: "))
    assert hash_of(page) == {"view": "live", "machine": "write", "seconds": "3600"}
    expect(page.locator("#moves tbody tr", has_text="write_started")).to_be_visible()
    before = moves(page)["write_started", "RESERVED"]
    assert not page.locator("#moves a").count()

    answer(served.server, model="counted")
    page.clock.run_for(3000)

    line = page.locator("#moves tbody tr", has_text="write_started")
    expect(line.locator(".number")).to_have_text(str(before + 1))


def test_models_are_shown_with_their_queues_and_caches(open_page):
    page = open_page("view=models")
    cards = page.locator("#model-list > li")
    expect(cards.first).to_be_visible()
    told = {card.get_by_role("link").inner_text(): facts(card) for card in cards.all()}

    assert {"plain", "held", HOSTILE} < told.keys()
    assert page.locator("main img").count() == 0
    held, plain = told["held"], told["plain"]
    assert (held["Decoding"], held["Waiting"], held["Held by"]) == ("1 of 1", "2 of 2", "3 requests")
    assert (plain["Decoding"], plain["Waiting"], plain["KV caches"]) == ("0 of 1", "0 of 2", "3 in 180 MB of 512 MB")
    assert told["failing"]["KV caches"] == "none"
    assert plain["Instance"] == "1"
    states = {card.get_by_role("link").inner_text(): card.locator(".badge").inner_text() for card in cards.all()}
    assert (states["plain"], states["failing"]) == ("READY", "READY")


def test_writes_that_have_not_landed_are_shown_with_what_became_of_them(open_page, served):
    page = open_page("view=models")
    lines = page.locator("#writes tbody tr")
    link = page.get_by_role("link", name=served.trace("late")["response_id"])

    expect(lines).to_have_count(1)
    expect(lines.locator(".badge")).to_have_text("WEDGED")
    expect(lines.locator(".quiet")).to_have_text("in flight past the hard timeout")
    expect(lines.locator(".number")).to_have_text(re.compile(r"^[\d.]+ s$|min"))

    slower = [{"id": "resp_1", "state": "FAILED", "seconds": 71}, {"id": "resp_2", "state": "LATE", "seconds": 0.25}]
    page.route("**/interlock/live", lambda route: route.fulfill(json={**route.fetch().json(), "writes": slower}))

    expect(lines).to_have_count(2)
    assert [line.split("\t") for line in lines.all_inner_texts()] == [
        ["resp_1", "FAILED failed, to be tried again", "1 min 11 s"],
        ["resp_2", "LATE in flight past the soft timeout", "250 ms"],
    ]

    page.unroute("**/interlock/live")
    link.click()
    expect_among(page, {served.ids["late"]})


def test_pace_is_plotted_and_told_in_figures(open_page, served):
    page = open_page("view=pace&last=3600")
    line = page.locator("#paces tbody tr", has=page.get_by_text("plain", exact=True))

    expect(line.locator("td").nth(1)).to_have_text(str(PAGED + 1))
    answered = int(page.locator("#pace-of").inner_text().split()[0])
    for plot in ("#plot-first", "#plot-rate"):
        assert page.locator(f"{plot} .dot").count() == answered
        expect(page.locator(f"{plot} svg")).to_have_attribute(
            "aria-label", re.compile(f"of {answered} answers; the table")
        )
    assert page.locator("#paces td").nth(4).inner_text()

    page.locator("#pace").get_by_label("Model").select_option(HOSTILE)
    expect(page.locator("#plot-first .dot")).to_have_count(1)
    page.locator("#paces tbody a").click()
    assert hash_of(page) == {"exchange": served.ids["hostile"]}
