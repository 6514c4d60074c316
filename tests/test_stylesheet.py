"""The style of the drawings for pages: it says what the drawings say, and is legible light and dark."""

import re
from itertools import pairwise

import pytest

from diagrams.draw import SKETCHES
from diagrams.ink import INKS, PAPER, PENCIL
from diagrams.layout import to_svg
from diagrams.stylesheet import DARK, DARK_PAPER, DARK_PENCIL, to_stylesheet

SHEET = to_stylesheet()
LIGHT_PART, DARK_PART = SHEET.split("@media (prefers-color-scheme: dark)")
LEGIBLE = 4.5  # WCAG 2.2, 1.4.3


def rules_in(text):
    """List the rules of drawings, without their colours."""
    found = re.findall(r"^(\.diagram [^{]+) \{ (.+) \}$", text, re.MULTILINE)
    return {(selector, re.sub(r"#[0-9a-f]{6}|var\(--[a-z-]+\)", "…", declared)) for selector, declared in found}


def contrast(one, other):
    """Reckon the contrast of two colours, as WCAG defines it."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda sketch: sketch.table.name)
def test_a_drawing_has_no_rule_that_the_stylesheet_lacks(sketch):
    rules = rules_in(to_svg(sketch))

    assert len(rules) > 20
    assert rules <= rules_in(SHEET)


def test_every_colour_that_is_used_is_given_light_and_dark():
    used = set(re.findall(r"var\((--[a-z-]+)\)", SHEET))

    assert used == set(re.findall(r"(--[a-z-]+):", LIGHT_PART)) == set(re.findall(r"(--[a-z-]+):", DARK_PART))
    assert DARK.keys() == INKS.keys()


@pytest.mark.parametrize(
    ("inks", "paper", "pencil"), [(INKS, PAPER, PENCIL), (DARK, DARK_PAPER, DARK_PENCIL)], ids=["light", "dark"]
)
def test_all_text_is_legible(inks, paper, pencil):
    pairs = [(pencil, paper), *((ink.text, behind) for ink in inks.values() for behind in (ink.fill, paper))]

    assert [pair for pair in pairs if contrast(*pair) < LEGIBLE] == []


def test_contrast_is_reckoned_as_wcag_does():
    greys = ["#000000", "#767676", "#ffffff"]

    assert [round(contrast(*pair), 2) for pair in pairwise(greys)] == [4.62, 4.54]
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
