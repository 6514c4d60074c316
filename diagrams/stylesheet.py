"""The style of the drawings as a file of its own, for a page that allows no style within them, light and dark."""

from collections.abc import Iterator, Mapping

from diagrams.ink import INKS, PAPER, PENCIL, Ink
from diagrams.svg import to_rules

DARK = {
    "progress": Ink("#0c2a4d", "#4493f8", "#a5d3ff", "under way"),
    "delayed": Ink("#332701", "#d29922", "#f0cf6a", "delayed"),
    "done": Ink("#0b2e17", "#3fb950", "#8ae99c", "done"),
    "refused": Ink("#3a1c05", "#e38b3f", "#ffbe85", "refused: an HTTP error"),
    "failed": Ink("#3f1214", "#f85149", "#ffb1ab", "failed"),
    "abandoned": Ink("#262c36", "#8d96a0", "#c9d1d9", "given up"),
}
DARK_PAPER, DARK_PENCIL = "#0f141a", "#e6edf3"


def to_stylesheet() -> str:
    """Write the colours as custom properties, `--done-fill` and so on, and the rules of the drawings by them."""
    light = [f"  {line}" for line in _to_properties(INKS, PAPER, PENCIL)]
    dark = [f"    {line}" for line in _to_properties(DARK, DARK_PAPER, DARK_PENCIL)]
    named = {name: Ink(*(f"var(--{name}-{part})" for part in Ink._fields)) for name in INKS}
    rules = to_rules(named, "var(--paper)", "var(--pencil)")
    sheet = [":root {", *light, "}", "@media (prefers-color-scheme: dark) {", "  :root {", *dark, "  }", "}", *rules]
    return "\n".join([*sheet, ""])


def _to_properties(inks: Mapping[str, Ink], paper: str, pencil: str) -> Iterator[str]:
    yield f"--paper: {paper};"
    yield f"--pencil: {pencil};"
    for name, ink in inks.items():
        yield f"--{name}-fill: {ink.fill};"
        yield f"--{name}-line: {ink.line};"
        yield f"--{name}-text: {ink.text};"
