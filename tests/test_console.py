"""The page at /console over HTTP: its files need no token, hold no data and let nothing else in."""

import json
import re
import tomllib
from fnmatch import fnmatch

import pytest

from handlers.app import create_app
from handlers.console.page import FILES, FOLDER, PATHS
from handlers.settings import Settings
from machines.tables import TABLES
from tests.asgi import running
from tests.doubles import to_services
from tests.live import ROOT

TOKENS = {"anna": "secret"}
PAGE = FILES["/console"].decode()
SCRIPTS = {path: text.decode() for path, text in FILES.items() if path.endswith(".js")}


@pytest.fixture
def serve(engine, store):
    return lambda **settings: running(create_app(to_services(engine, store, Settings(**settings))))


@pytest.mark.parametrize("path", sorted(PATHS))
async def test_a_file_of_the_page_needs_no_token_and_lets_nothing_else_in(serve, path):
    async with serve(tokens=TOKENS) as client:
        reply = await client.request("GET", path)

    assert reply.status_code == 200
    assert reply.text
    assert reply.headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["X-Interlock-Exchange"].startswith("ex_")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/console", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/diagram.css", "text/css; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_has_its_type(serve, path, kind):
    async with serve() as client:
        assert (await client.request("GET", path)).headers["Content-Type"] == kind


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/console/"), ("GET", "/console/index.html"), ("GET", "/console/page.py"),
        ("GET", "/console/../gate.py"), ("POST", "/console"), ("GET", "/interlock/live"),
        ("GET", "/interlock/exchanges"), ("GET", "/interlock/diagrams/exchange.svg"),
    ],
)  # fmt: skip
async def test_nothing_else_is_had_without_a_token(serve, method, path):
    async with serve(tokens=TOKENS) as client:
        assert (await client.request(method, path)).status_code == 401


@pytest.mark.parametrize("name", ["", "index.html", "page.py", "__init__.py", "nothing.js"])
async def test_a_file_that_the_page_lacks_is_refused_by_a_row(serve, name):
    async with serve() as client:
        reply = await client.request("GET", f"/console/{name}")

    assert reply.status_code == 404
    assert reply.json["error"]["message"].startswith(f"There is no GET /console/{name};")


async def test_under_a_foreign_name_there_is_no_page(serve):
    async with serve() as client:
        reply = await client.request("GET", "/console", host="evil.example")

    assert (reply.status_code, reply.json["error"]["code"]) == (403, "host_foreign")


def test_every_file_of_the_page_is_in_the_wheel():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    names = [file.name for file in FOLDER.iterdir() if file.name.rpartition(".")[2] in {"html", "css", "js", "svg"}]

    assert len(names) == len(FILES)
    assert [name for name in names if not any(fnmatch(name, each) for each in patterns["handlers.console"])] == []


def test_the_page_names_no_file_that_it_lacks():
    named = re.findall(r'(?:href|src)="(console/[^"]+)"', PAGE)
    imported = [found for text in SCRIPTS.values() for found in re.findall(r"from '\./([a-z]+\.js)'", text)]

    assert {f"/{name}" for name in named} | {f"/console/{name}" for name in imported} == PATHS - {"/console"}


@pytest.mark.parametrize("path", sorted(SCRIPTS))
def test_a_script_reads_no_markup_and_is_short(path):
    """Text goes in as text: what would read it as markup, or run it, is not in use."""
    text = SCRIPTS[path]

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|text/html", text
    )
    assert len(text.splitlines()) < 300
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("path", [path for path in sorted(FILES) if path != "/console/icon.svg"])
def test_the_page_names_no_other_host(path):
    addresses = re.findall(r"https?://[^\s'\"]+|(?<![:\w])//[\w.]+\.\w+", FILES[path].decode())

    assert set(addresses) <= {"http://www.w3.org/2000/svg"}


def test_the_page_offers_every_machine():
    choices = PAGE.partition('<select name="machine">')[2].partition("</select>")[0]

    assert re.findall(r"<option>(\w+)</option>", choices) == [table.name for table in TABLES]


def test_a_state_that_is_filtered_for_is_one_of_a_request():
    choices = PAGE.partition('<select name="state">')[2].partition("</select>")[0]
    states = {state.name for table in TABLES if table.name == "exchange" for state in table.states}

    offered = set(re.findall(r'<option value="(\w+)">', choices))
    assert offered < states
    assert {"DONE", "REFUSED", "FAILED", "ABANDONED"} < offered


def test_no_file_holds_data():
    assert not re.search(r"ex_[0-9a-f]{8}|resp_[0-9a-f]{8}", json.dumps([text.decode() for text in FILES.values()]))
