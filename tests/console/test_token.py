"""A server with tokens, and one that goes away: the page says so, and goes on where it was."""

import socket
from contextlib import ExitStack

import pytest

from tests.console.browsing import expect
from tests.live import launched, scripted

TOKEN = "s3cret-täken-✓"  # noqa: S105 - for these tests alone


class Guarded:
    """A server with a token, that can go away and come back at the same address."""

    def __init__(self, db):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._bind = f"127.0.0.1:{free.getsockname()[1]}"
        self._db = db
        self._stack = ExitStack()

    @property
    def url(self):
        return f"http://{self._bind}"

    def start(self):
        arguments, env = scripted(self._db)
        command = (*arguments, "-b", self._bind, "tests.console.app:app")
        self._server = self._stack.enter_context(launched(*command, **env, INTERLOCK_TOKEN=f"anna={TOKEN}"))
        self._server.started()
        self._server.ask_until(200, "GET", "/health")

    def ask(self, method, path, body=None):
        return self._server.ask(method, path, body, authorization=f"Bearer {TOKEN}".encode().decode("latin-1"))[1]

    def stop(self):
        self._stack.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    guarded = Guarded(str(tmp_path_factory.mktemp("guarded") / "responses.duckdb"))
    guarded.start()
    yield guarded
    guarded.stop()


def enter(page, token):
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")


def look_again(page):
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_token_is_asked_for_and_kept_in_this_tab_alone(open_new, guarded):
    page = open_new("view=models", guarded.url)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    field = page.get_by_label("Token", exact=True)
    expect(field).to_be_focused()
    expect(page.get_by_role("heading", name="Models")).to_be_hidden()
    expect(page.locator("#token-fault")).to_have_text("")

    enter(page, "guess")
    expect(page.get_by_role("alert").filter(has_text="The token is none of this server's.")).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()

    enter(page, f" {TOKEN} ")
    expect(page.get_by_role("heading", name="Models")).to_be_focused()
    expect(page.locator("#model-list > li").first).to_be_visible()
    assert page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]") == [
        {"interlock-token": TOKEN}, {}, "",
    ]  # fmt: skip
    assert asked
    assert [url for url in asked if "s3cret" in url or "guess" in url] == []
    assert page.context.new_page().goto(f"{guarded.url}/console").ok
    expect(page.context.pages[-1].get_by_label("Token", exact=True)).to_be_visible()

    page.get_by_role("button", name="Forget token").click()
    expect(field).to_be_focused()
    assert page.evaluate("({...sessionStorage})") == {}


def test_a_link_to_an_exchange_leads_there_once_the_token_is_given(open_new, guarded):
    guarded.ask("POST", "/v1/responses", {"model": "failing", "input": "Hello"})
    (trace,) = guarded.ask("GET", "/interlock/exchanges?event=decode_failed")["data"]
    page = open_new(f"exchange={trace['id']}", guarded.url)

    enter(page, TOKEN)

    expect(page.locator("#one-outcome")).to_have_text("failed")
    expect(page.locator('#one-drawing .edge.lit[data-event="failure_sent"]')).to_be_in_viewport()


def test_a_server_that_goes_away_is_told_of_and_its_return_too(open_new, guarded):
    page = open_new("view=models", guarded.url)
    enter(page, TOKEN)
    expect(page.locator("#model-list > li").first).to_be_visible()

    guarded.stop()
    look_again(page)

    news = page.get_by_role("alert").filter(has_text="The server does not answer. Asking again. What is shown is from")
    expect(news).to_be_visible()
    expect(page.locator("#model-list > li").first).to_be_visible()

    guarded.start()
    look_again(page)

    expect(news).to_be_hidden()
    expect(page.get_by_role("status")).to_have_text("The server answers again.")
