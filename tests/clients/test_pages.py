"""Each page's program, run by the client it is about against a real gunicorn, prints what the page says."""

import json
import re
import sys

import pytest

from tests.clients import installed
from tests.clients.pages import FOLDER, read_output, read_program
from tests.live import ROOT

pytestmark = pytest.mark.timeout(300)  # clients are slow to start
PACKAGES = {
    "agents-sdk.md": ["openai-agents"],
    "ai-sdk.md": ["npm:ai", "npm:@ai-sdk/openai", "npm:@ai-sdk/open-responses"],
    "codex.md": ["npm:@openai/codex"],
    "langchain.md": ["langchain-openai"],
    "litellm.md": ["litellm"],
    "openai-node.md": ["npm:openai"],
    "openai-python.md": ["openai"],
}
README = (ROOT / "README.md").read_text()


def test_the_page_of_the_official_python_client(server):
    program = read_program("openai-python.md", "python", server.url)

    assert installed.run(sys.executable, "-", program=program) == read_output("openai-python.md")


@pytest.mark.parametrize("page", ["agents-sdk.md", "langchain.md", "litellm.md"])
def test_the_page_of_a_python_client(page, server):
    python = installed.find_python()

    assert installed.run(python, "-", program=read_program(page, "python", server.url)) == read_output(page)


@pytest.mark.parametrize("page", ["ai-sdk.md", "openai-node.md"])
def test_the_page_of_a_node_client(page, server):
    assert installed.run_node(read_program(page, "js", server.url)) == read_output(page)


def test_every_page_is_linked_and_names_the_versions_that_are_tested():
    pins = _pins()

    assert PACKAGES.keys() == {path.name for path in FOLDER.iterdir()}
    for page, packages in PACKAGES.items():
        text = (FOLDER / page).read_text()
        assert f"(docs/clients/{page})" in README
        assert [f"{name} {pins[name]}" for name in packages if f" {pins[name]}" not in text] == []


def _pins() -> dict[str, str]:
    pinned = (ROOT / "constraints.txt").read_text() + (ROOT / "constraints-clients.txt").read_text()
    node = json.loads((ROOT / "tests/clients/package.json").read_text())["dependencies"]
    return {
        **dict(re.findall(r"^([\w-]+)==(.+)$", pinned, re.MULTILINE)),
        **{f"npm:{name}": version for name, version in node.items()},
    }
