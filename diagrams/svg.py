"""SVG, one mark at a time: text is escaped here, and widths are reckoned from letters, so no font is measured.

All colours are rules on classes under `.diagram`, so a page that holds a drawing can give it others.
"""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from diagrams.ink import PAPER, PENCIL, Ink

MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
LETTER = 0.61  # the width of a monospaced letter, in ems
NARROW, WIDE = 0.32, 0.57  # of the others
SIZES = {"h": 19, "name": 13, "to": 12, "event": 11.5, "code": 10.5, "say": 11.5, "value": 11}
PROPORTIONAL = frozenset({"h", "say", "value"})
ROUNDED = {"state": 8, "group": 6, "chip": 8}
STROKES = {"arrow": 1.6, "state": 1.6, "group": 1, "chip": 0.8}
LIT = {"arrow": 3.2, "state": 3.2, "group": 1.6, "chip": 2}

Point = tuple[float, float]


def wide(words: str, kind: str) -> float:
    """Reckon how wide words will be; `kind` is a row of SIZES."""
    if kind in PROPORTIONAL:
        return SIZES[kind] * sum(NARROW if letter in " ,.:;'fijlrt" else WIDE for letter in words)
    return len(words) * SIZES[kind] * LETTER


def text(at: Point, words: str, kind: str, outcome: str = "") -> str:
    """Write words; `kind` is a row of SIZES."""
    drawn_as = f"{kind} {outcome}".strip()
    return f'<text x="{at[0]:g}" y="{at[1]:g}" class="{drawn_as}">{escape(words)}</text>'


def box(at: Point, size: Point, kind: str, outcome: str) -> str:
    """Draw a rounded box; `kind` is a row of ROUNDED."""
    place = f'x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" rx="{ROUNDED[kind]}"'
    return f'<rect {place} class="{kind} {outcome}"/>'


def arrow(points: Sequence[Point], outcome: str) -> str:
    """Draw a line through the points, with a head at the last."""
    way = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{way}" class="arrow {outcome}" marker-end="url(#head-{outcome})"/>'


def mark(kind: str, stands_for: Mapping[str, str], title: str, parts: Iterable[str]) -> str:
    """Join parts under one tooltip, with what they stand for as data attributes."""
    data = "".join(f" data-{name}={quoteattr(value)}" for name, value in stands_for.items())
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    return f'<g class="{kind}"{data}>{tooltip}{"".join(parts)}</g>'


def page(size: Point, title: str, inks: Mapping[str, Ink], marks: Iterable[str]) -> str:
    """Make the file, on paper of its own colour."""
    width, height = size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" class="diagram" role="img">'
    )
    paper = f'<rect width="{width:g}" height="{height:g}" rx="8" class="paper"/>'
    title_mark = f"<title>{escape(title)}</title>"
    style = "\n".join(["<style>", *to_rules(inks, PAPER, PENCIL), "</style>"])
    return "\n".join([head, title_mark, style, _heads(inks), paper, *marks, "</svg>", ""])


def to_rules(inks: Mapping[str, Ink], paper: str, pencil: str) -> list[str]:
    """Write the rules that colour a drawing."""
    rules = [f"text {{ font-family: {SANS}; fill: {pencil} }}", f".paper {{ fill: {paper} }}"]
    rules += [f".{kind} {{ font-size: {size}px }}" for kind, size in SIZES.items()]
    rules += [f"text.{kind} {{ font-family: {MONO} }}" for kind in SIZES if kind not in PROPORTIONAL]
    rules += [f"text.{kind} {{ font-weight: 600 }}" for kind in ("h", "name", "to")]
    rules += [".arrow { fill: none }", *(f".{kind} {{ stroke-width: {width} }}" for kind, width in STROKES.items())]
    for outcome, ink in inks.items():
        rules.append(f"text.{outcome} {{ fill: {ink.text} }}")
        rules.append(f"rect.{outcome} {{ fill: {ink.fill}; stroke: {ink.line} }}")
        rules.append(f".arrow.{outcome} {{ stroke: {ink.line} }}")
        rules.append(f".head.{outcome} {{ fill: {ink.line} }}")
    rules += [f"rect.chip {{ fill: {paper} }}", ".dim { opacity: 0.25 }"]
    rules += [f".lit .{kind} {{ stroke-width: {width} }}" for kind, width in LIT.items()]
    return [f".diagram {rule}" for rule in rules]


def _heads(inks: Mapping[str, Ink]) -> str:
    shape = 'viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse"'
    tip = 'd="M0,0.5 L8,4 L0,7.5 z"'
    heads = [
        f'<marker id="head-{outcome}" {shape} orient="auto"><path {tip} class="head {outcome}"/></marker>'
        for outcome in inks
    ]
    return "<defs>" + "".join(heads) + "</defs>"
