"""The list of exchanges: what it shows, its filters and its pages."""

import re

import pytest

from tests.console.browsing import cells, expect, expect_among, expect_ids, hash_of, ids, row
from tests.console.names import HOSTILE
from tests.console.seen import PAGED

ENDS = {
    "chained": ("done", "row_written", "plain"),
    "late": ("done", "row_late", "slow-disk"),
    "429": ("refused 429", "queue_full", "held"),
    "503": ("refused 503", "write_unsettled", "slow-disk"),
    "failed": ("failed", "failure_sent", "failing"),
}


def test_the_list_shows_how_an_exchange_went(open_page, served):
    page = open_page("view=exchanges")

    for name, (words, event, model) in ENDS.items():
        shown = row(page, served.ids[name]).locator("td").all_inner_texts() if cells(page) else []
        assert shown[1:5] == [words, event, model, "POST /v1/responses"]
        assert re.fullmatch(r"[\d.]+ m?s", shown[5])


def test_what_is_under_way_comes_first(open_page, served):
    page = open_page("view=exchanges")

    first = [(line[1], line[2]) for line in cells(page)[:3]]

    assert sorted(first) == [
        ("under way, DISPATCHING", "slot_granted"), ("under way, QUEUED", "prompt_made"),
        ("under way, QUEUED", "prompt_made"),
    ]  # fmt: skip


def test_names_that_are_markup_are_shown_as_text(open_page, served):
    page = open_page("view=exchanges")

    expect(row(page, served.ids["hostile"]).locator("td").nth(3)).to_have_text(HOSTILE)
    expect(row(page, served.ids["unrouted"]).locator("td").nth(4)).to_have_text("GET")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(
    ("label", "filters"),
    [
        ("Status", [("503", {"503"}), ("429", {"429"})]),
        ("Event on the path", [("queue_full", {"429"}), ("decode_failed", {"failed"})]),
        ("Model", [(HOSTILE, {"hostile"}), ("slow-disk", {"503", "late"})]),
    ],
)
def test_a_field_filters(open_page, served, label, filters):
    page = open_page("view=exchanges")
    field = page.locator("#filters").get_by_label(label, exact=True)

    for value, names in filters:
        field.fill(value)
        page.keyboard.press("Enter")

        expect(page.locator("#found")).to_have_text(f"{len(names)} shown")
        expect_ids(page, {served.ids[name] for name in names})
        assert value in hash_of(page).values()
        expect(field).to_be_focused()


def test_outcomes_filter_and_clear_shows_all_again(open_page, served):
    page = open_page("view=exchanges")
    page.get_by_label("Outcome").select_option("refused")
    expect(page.locator("#found")).not_to_contain_text("25")
    expect_among(page, {served.ids[name] for name in ("503", "429", "unrouted")})
    assert all(line[1].startswith("refused ") for line in cells(page))

    page.get_by_role("link", name="Clear").click()

    expect(page.locator("#list tbody tr")).to_have_count(25)
    expect(page.get_by_label("Outcome")).to_have_value("")


def test_a_time_in_between_filters(open_page, served):
    page = open_page("view=exchanges&model=plain")
    page.locator("#filters").get_by_label("Time").select_option("between …")
    until = page.get_by_label("Until")

    until.fill("2020-01-01T00:00:00")
    until.press("Enter")

    expect(page.get_by_text("Nothing like this left a trace here.")).to_be_visible()

    until.fill("2199-01-01T00:00:00")
    until.press("Enter")

    expect(page.locator("#list tbody tr")).to_have_count(25)
    page.get_by_label("From").fill("2198-01-01T00:00:00")
    page.get_by_label("From").press("Enter")
    expect(page.get_by_text("Nothing like this left a trace here.")).to_be_visible()


def test_the_last_minutes_are_reckoned_from_now(open_new):
    page = open_new("view=exchanges&last=300&state=DONE", is_timed=True)
    cells(page)
    expect(page.locator("#filters").get_by_label("Time")).to_have_value("300")

    page.clock.set_system_time("2199-01-01T00:00:00Z")
    page.reload()

    expect(page.get_by_text("Nothing like this left a trace here.")).to_be_visible()


def test_an_event_that_no_row_has_is_told_by_the_server_s_sentence(open_page):
    page = open_page("view=exchanges&event=%3Cb%3E")

    expect(page.locator("#list-fault")).to_have_text(
        "Invalid value for `event`: no row of a request's tables has the event '<b>'."
    )


def test_a_server_that_keeps_no_traces_is_told_of(open_page):
    page = open_page("view=pace")
    page.route("**/interlock/live*", lambda route: route.fulfill(json={**route.fetch().json(), "tracing": False}))
    banner = page.get_by_text("This server keeps no traces")
    expect(banner).to_be_hidden()

    page.get_by_role("link", name="Exchanges").click()

    expect(banner).to_be_visible()


def test_events_and_models_are_suggested(open_page):
    page = open_page("view=exchanges")
    cells(page)

    events = page.locator("#events option").evaluate_all("options => options.map((option) => option.value)")
    models = page.locator("#model-names option").evaluate_all("options => options.map((option) => option.value)")

    assert {"queue_full", "write_unsettled", "heartbeat_due", "row_late"} < set(events)
    assert {"plain", "failing", "held", "slow-disk", HOSTILE} < set(models)


def test_pages_lead_to_the_oldest_and_back(open_page, served):
    page = open_page("view=exchanges&model=plain")
    newest = page.get_by_role("link", name="← Newest")
    older = page.get_by_role("link", name="Older →")
    first = ids(page)
    last = page.locator("#list a").last.get_attribute("data-exchange")
    expect(newest).to_be_hidden()

    older.click()

    expect(page.locator("#list tbody tr")).to_have_count(PAGED + 1 - 25)
    assert len(first | ids(page)) == PAGED + 1
    expect(older).to_be_hidden()
    assert hash_of(page) == {"view": "exchanges", "model": "plain", "after": last}

    newest.click()

    expect(page.locator("#list tbody tr")).to_have_count(25)
    assert "after" not in hash_of(page)


def test_a_page_after_an_exchange_that_left_no_trace_says_so(open_page):
    page = open_page("view=exchanges&after=ex_gone")

    expect(page.locator("#list-fault")).to_have_text(re.compile("Invalid value for `after`: no exchange with the id"))
    expect(page.get_by_role("link", name="← Newest")).to_be_visible()
