"""Fixtures: a live server with some exchanges behind it, and pages of a real browser that may do nothing wrong.

The pages of a test that fails are left as screenshots in build/console, and the failure names them.
"""

import re
import shutil
from urllib.parse import urlsplit

import pytest

from tests.console.seen import Seen, seed
from tests.live import ROOT, launched, scripted

SHOTS = ROOT / "build/console"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REPORT = "addEventListener('securitypolicyviolation', (event) => console.error('policy', event.violatedDirective))"
SIZE = {"width": 1280, "height": 900}
HAS_FAILED = pytest.StashKey[bool]()
ENV = {
    "MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS": "200",
    "MLX_POST_COMMIT_PERSIST_TIMEOUT_MS": "200",
    "MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": "1000",
    "INTERLOCK_HEARTBEAT_SECONDS": "600",
}


@pytest.fixture(scope="package")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not every machine has it

    if CHROMIUM is None:
        pytest.skip("there is no chromium to open the console in; apt-get install chromium")
    shutil.rmtree(SHOTS, ignore_errors=True)
    with sync_playwright() as playwright:
        # the sandbox needs what containers lack, and no page but this server's own is opened
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def served(tmp_path_factory):
    """Run a server and have it answer, refuse and fail some requests; gives it, and the ids of their exchanges."""
    arguments, env = scripted(str(tmp_path_factory.mktemp("console") / "responses.duckdb"))
    with launched(*arguments, "tests.console.app:app", **env, **ENV) as server:
        server.started()
        server.ask_until(200, "GET", "/health")
        with seed(server) as ids:
            yield Seen(server, ids)


@pytest.fixture(scope="package")
def shared(browser, served):
    """Give a page that tests use by turns, for to make one takes longer than most of them; and its faults."""
    page, faults = browser.new_page(), []
    watch(page, served.server.url, faults)
    yield page, faults
    page.close()


@pytest.fixture
def open_page(shared, served, request):
    """Open the console at a view; what the page does wrong fails the test."""
    page, faults = shared
    faults.clear()

    def open_page(view=""):
        page.goto("about:blank")
        page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        page.set_viewport_size(SIZE)
        page.goto(f"{served.server.url}/console#{view}")
        return page

    yield open_page
    keep_shots(request.node, [page], faults)
    page.unroute_all()
    assert faults == []


@pytest.fixture
def open_new(browser, served, request):
    """Open the console as `open_page` does, but in a browser of its own, and its clock may be the test's."""
    contexts, faults = [], []

    def open_new(view="", url=served.server.url, *, is_timed=False, is_policed=True):
        contexts.append(browser.new_context(viewport=SIZE))
        page = contexts[-1].new_page()
        watch(page, url, faults if is_policed else [])
        if is_timed:
            page.clock.install()
        page.goto(f"{url}/console#{view}")
        return page

    yield open_new
    keep_shots(request.node, [page for context in contexts for page in context.pages], faults)
    for context in contexts:
        context.close()
    assert faults == []


def watch(page, url, faults):
    """Take note of what a page does wrong, whatever its test looks at."""
    page.set_default_timeout(20_000)
    page.add_init_script(REPORT)
    page.on("console", lambda message: faults.extend(to_faults(message)))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: faults.extend(to_strangers(asked.url, url)))
    page.on("dialog", lambda dialog: (faults.append(f"a dialog says {dialog.message}"), dialog.dismiss()))


def keep_shots(node, pages, faults):
    if node.stash.get(HAS_FAILED, False) or faults:
        for number, page in enumerate(pages):
            page.screenshot(path=to_shot(node.name, number), full_page=True)


def to_shot(name, number):
    SHOTS.mkdir(parents=True, exist_ok=True)
    return SHOTS / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}-{number}.png"


def to_faults(message):
    """Take what the console says for a fault, but for a reply that is a refusal, or none: the page tells of those."""
    address = urlsplit(message.location["url"]).path
    is_told = message.text.startswith("Failed to load resource") and address.startswith("/interlock/")
    return [] if message.type != "error" or is_told else [message.text]


def to_strangers(asked, url):
    return [] if urlsplit(asked).netloc == urlsplit(url).netloc else [f"{asked} is of another host"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and {"open_page", "open_new"} & set(item.fixturenames):
        item.stash[HAS_FAILED] = True
        report.sections.append(("screenshots", str(to_shot(item.name, "*"))))
    return report
