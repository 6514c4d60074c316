"""Reads the pages of docs/clients, so that what they show is what is tested.

The programs of a page are one program, cut in pieces; its `text` blocks, joined, are what that prints.
"""

import re

from tests.live import ROOT

FOLDER = ROOT / "docs/clients"
SHOWN_URL = "http://127.0.0.1:8080"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_program(page: str, language: str, url: str) -> str:
    """Join a page's pieces of program, and turn them to a server."""
    return "\n".join(_read_blocks(page, language)).replace(SHOWN_URL, url)


def read_output(page: str) -> str:
    """Join what a page says it prints."""
    return "".join(_read_blocks(page, "text"))


def read_setting(page: str, name: str) -> str:
    """Give a setting that a page shows in a line, such as `name = value`."""
    return re.search(rf"`({re.escape(name)} = [^`]+)`", (FOLDER / page).read_text())[1]


def _read_blocks(page: str, language: str) -> list[str]:
    return [block for name, block in BLOCK.findall((FOLDER / page).read_text()) if name == language]
