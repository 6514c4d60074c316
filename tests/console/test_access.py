"""Whoever looks: by keyboard, in dark and light, on a phone, with the tab hidden or the page paused."""

import pytest

from tests.console.browsing import cells, expect, hash_of, row
from tests.console.conftest import to_shot
from tests.console.seen import answer

REACHABLE = "main :is(a[href], button, input, select, [tabindex='0']), header :is(a[href], button, input)"
FOCUSED = """() => {
  const node = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(node);
  node.dataset.reached = outlineStyle === 'none' ? outlineStyle : outlineWidth;
  return node === document.body ? null : node.dataset.reached;
}"""

SHADES = """() => [['body', 'backgroundColor'], ['.paper', 'fill']]
  .map(([which, name]) => Number(getComputedStyle(document.querySelector(which))[name].match(/\\d+/)[0]))"""


def walk(page):
    """Press Tab until the page is left; gives what can be reached and was not, and how thick each outline is."""
    widths = []
    page.keyboard.press("Tab")
    while (width := page.evaluate(FOCUSED)) is not None:
        widths.append(width)
        page.keyboard.press("Tab")
    left = page.evaluate(
        "(which) => [...document.querySelectorAll(which)]"
        ".filter((node) => node.checkVisibility() && !node.dataset.reached).map((node) => node.outerHTML)",
        REACHABLE,
    )
    return left, widths


def views_of(served):
    return {
        "live": "view=live",
        "exchanges": "view=exchanges",
        "exchange": f"exchange={served.ids['503']}",
        "models": "view=models",
        "pace": "view=pace&last=3600",
    }


def settled(page):
    """Wait until the view has been filled."""
    filled = "#tiles li, #list tbody tr, #one-path li, #model-list > li, #plot-rate svg"
    page.locator(filled).filter(visible=True).first.wait_for()


@pytest.mark.parametrize("view", ["live", "exchanges", "exchange", "models", "pace"])
def test_everything_is_reached_by_keyboard_and_seen_to_be(open_page, served, view):
    page = open_page(views_of(served)[view])
    settled(page)

    left, widths = walk(page)

    assert left == []
    assert len(widths) > 10
    assert set(widths) <= {"2px", "3px"}


def test_the_keyboard_alone_leads_to_an_exchange_and_back(open_page, served):
    page = open_page("view=live")
    settled(page)

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips the head of the page
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("link", name="Exchanges").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Exchanges")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.type("queue_full")
    page.keyboard.press("Enter")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    row(page, served.ids["429"]).get_by_role("link").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name=f"Exchange {served.ids['429']}")).to_be_focused()
    assert page.title() == f"Exchange {served.ids['429']} · Interlock"

    page.go_back()
    expect(row(page, served.ids["429"]).get_by_role("link")).to_be_focused()
    assert hash_of(page) == {"view": "exchanges", "event": "queue_full"}


def test_the_focus_stays_while_the_list_grows(open_new, served):
    page = open_new("view=exchanges&model=counted", is_timed=True)
    first, _ = answer(served.server, model="counted")
    page.clock.run_for(3000)
    link = page.locator(f'#list a[data-exchange="{first}"]')
    link.focus()

    second, _ = answer(served.server, model="counted")
    page.clock.run_for(3000)

    expect(row(page, second)).to_be_visible()
    expect(link).to_be_focused()


def test_the_focus_of_a_line_that_leaves_goes_to_its_neighbour(open_new, served):
    page = open_new("view=exchanges", is_timed=True)
    cells(page)
    page.locator("#list a").last.focus()
    leaving = page.locator("#list a").last.get_attribute("data-exchange")

    answer(served.server, model="counted")
    page.clock.run_for(3000)

    expect(page.locator(f'#list a[data-exchange="{leaving}"]')).to_have_count(0)
    expect(page.locator("#list a").last).to_be_focused()


LOOKS = [("light", 1280), ("dark", 1280), ("dark", 360), ("light", 360)]


def test_every_view_fits_each_width_and_scheme(open_page, served):
    """The pictures are left in build/console, to be looked at."""
    page = open_page()
    shades = []
    for scheme, width in LOOKS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900 if width > 400 else 740})
        for view, address in views_of(served).items():
            page.evaluate("(hash) => { location.hash = hash; }", address)
            settled(page)
            page.screenshot(path=to_shot(f"{view}-{scheme}", width))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        shades.append(page.evaluate(SHADES))

    assert [[shade > 200 for shade in each] for each in shades] == [[scheme == "light"] * 2 for scheme, _ in LOOKS]
    page.evaluate("location.hash = 'view=exchanges&last=between'")
    expect(page.get_by_label("From")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_nothing_moves_for_those_who_want_that(open_page):
    page = open_page("view=live")
    flow = page.locator("#live-drawing .flow").first
    before = flow.evaluate("node => getComputedStyle(node).transitionDuration")

    page.emulate_media(reduced_motion="reduce")

    assert (before, flow.evaluate("node => getComputedStyle(node).transitionDuration")) == ("0.4s", "0s")


def test_a_hidden_tab_asks_nothing_and_a_paused_page_neither(open_new):
    page = open_new("view=live", is_timed=True)
    settled(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    turn(page, is_hidden=True)
    page.clock.run_for(60_000)
    assert asked == []

    with page.expect_response("**/interlock/live*"):
        turn(page, is_hidden=False)
    page.get_by_role("button", name="Pause").click()
    asked.clear()
    page.clock.run_for(60_000)
    assert asked == []

    with page.expect_response("**/interlock/live*"):
        page.get_by_role("button", name="Pause").click()


def test_a_look_that_ends_in_a_hidden_tab_is_the_last(open_new):
    page = open_new("view=live", is_timed=True)
    settled(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    with page.expect_response("**/interlock/live*"):
        turn(page, is_hidden=True, is_told=False)
        page.clock.run_for(2000)
    settled(page)
    page.clock.run_for(60_000)

    assert len(asked) == 1


def turn(page, *, is_hidden, is_told=True):
    """Hide the tab or show it, and tell the page so."""
    page.evaluate(
        "(hidden) => Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })", is_hidden
    )
    if is_told:
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
