"""The README says what the program does."""

import json
import re
import subprocess
import sys

import pytest

from handlers import settings
from handlers.cli import cli
from handlers.serving import READY
from tests.live import ROOT

README = (ROOT / "README.md").read_text()
SETTINGS = README.partition("## Settings")[2].partition("\n## ")[0]


def test_every_setting_is_in_the_table_and_no_other():
    read = set(re.findall(r'"((?:INTERLOCK|MLX)_[A-Z_]+)"', (ROOT / "handlers/settings.py").read_text()))

    assert set(re.findall(r"^\| `([A-Z_]+)`", SETTINGS, re.MULTILINE)) == read


def test_the_defaults_in_the_table_are_the_defaults():
    shown = dict(re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| ([^|]+?) \|", SETTINGS, re.MULTILINE))
    defaults = settings.from_env({})
    kept = {name: getattr(defaults, field) for name, (field, _) in settings.READERS.items()}
    numbers = {name: f"{value:d}" for name, value in kept.items() if isinstance(value, int)}

    assert len(numbers) > 15
    assert {name: shown[name] for name in numbers} == numbers


def test_every_option_of_serve_is_in_the_table():
    options = {option for parameter in cli.commands["serve"].params for option in parameter.opts}

    assert options == set(re.findall(r"`(--[a-z-]+)`", SETTINGS))


def test_each_request_in_the_readme_is_json_with_a_model_and_input():
    bodies = re.findall(r"-d '(\{.*?\})'", README)

    assert len(bodies) == 2
    for body in bodies:
        assert {"model", "input"} <= json.loads(body).keys()


def test_the_first_request_is_the_one_the_server_prints():
    printed = READY.format(name="smollm2-135m-instruct", host="127.0.0.1", port=8080, token="")

    assert re.search(r"-d '(\{.*?\})'", README)[1] in printed


@pytest.mark.parametrize("command", [["cogapp", "--check", "README.md", "docs/diagrams.md"]])
def test_the_checks_run_here(command):
    ended = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/diagrams.md"])
def test_every_linked_file_is_there(page):
    shown = re.sub("<!--.*?-->", "", (ROOT / page).read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", shown)

    assert links
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("drawing", sorted(path.name for path in (ROOT / "diagrams").glob("*.svg")))
def test_every_drawing_is_on_the_page_of_the_machines(drawing):
    page = (ROOT / "docs/diagrams.md").read_text()

    assert f"](../diagrams/{drawing})" in page
    assert f"```mermaid\n{(ROOT / 'diagrams' / drawing).with_suffix('.mmd').read_text()}```" in page


def test_the_readme_leads_to_the_page_of_the_machines():
    assert "](docs/diagrams.md)" in README
