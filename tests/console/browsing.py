"""What the tests of the page read and wait with; without a playwright for this machine they are skipped."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright has no program for this machine").expect


def row(page, exchange_id):
    """Find the line of an exchange."""
    return page.locator("#list tr", has=page.locator(f'a[data-exchange="{exchange_id}"]'))


def cells(page):
    """Read the list, once it is there."""
    expect(page.locator("#list tbody tr").first).to_be_visible()
    return [line.locator("td").all_inner_texts() for line in page.locator("#list tbody tr").all()]


def ids(page):
    """Read whose lines the list has."""
    cells(page)
    return {link.get_attribute("data-exchange") for link in page.locator("#list a").all()}


def expect_ids(page, expected):
    """Wait until the list has these lines, and no other."""
    expect_among(page, expected)
    expect(page.locator("#list tbody tr")).to_have_count(len(expected))


def expect_among(page, expected):
    """Wait until the list has these lines."""
    for exchange_id in expected:
        expect(row(page, exchange_id)).to_be_visible()


def hash_of(page):
    """Read what the address says is shown."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def facts(holder):
    """Read a list of facts."""
    names, values = (holder.locator(f".facts {part}").all_inner_texts() for part in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def moves(page):
    """Read how often each move was made, by its event and the state that it left."""
    lines = page.locator("#moves tbody tr").all_inner_texts()
    found = (re.match(r"(\w+)\s+(\w+) → \w+\s+([\d,]+)", line) for line in lines)
    return {(each[1], each[2]): int(each[3].replace(",", "")) for each in found}
