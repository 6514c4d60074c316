"""SVG, one mark at a time: text is escaped here, and widths are reckoned from letters, so no font is measured."""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

from diagrams.ink import PAPER, PENCIL, Ink

MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
LETTER = 0.61  # the width of a monospaced letter, in ems
SIZES = {"h": 19, "name": 13, "to": 12, "event": 11.5, "say": 11.5, "value": 11}

Point = tuple[float, float]


def wide(words: str, kind: str) -> float:
    """Reckon how wide monospaced text will be."""
    return len(words) * SIZES[kind] * LETTER


def text(at: Point, words: str, kind: str, outcome: str = "") -> str:
    """Write words; `kind` is a row of SIZES."""
    return f'<text x="{at[0]:g}" y="{at[1]:g}" class="{kind} {outcome}">{escape(words)}</text>'


def box(at: Point, size: Point, kind: str, outcome: str) -> str:
    """Draw a rounded box; `kind` is `state`, `group` or `chip`."""
    rounded = {"state": 8, "group": 6, "chip": 9}[kind]
    place = f'x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" rx="{rounded}"'
    return f'<rect {place} class="{kind} {outcome}"/>'


def arrow(points: Sequence[Point], outcome: str) -> str:
    """Draw a line through the points, with a head at the last."""
    way = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{way}" class="arrow {outcome}" marker-end="url(#head-{outcome})"/>'


def titled(title: str, marks: Iterable[str]) -> str:
    """Join marks under one tooltip."""
    return f"<g><title>{escape(title)}</title>{''.join(marks)}</g>"


def page(size: Point, title: str, inks: Mapping[str, Ink], marks: Iterable[str]) -> str:
    """Make the file, on paper of its own colour."""
    width, height = size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">'
    )
    paper = f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>'
    title_mark = f"<title>{escape(title)}</title>"
    return "\n".join([head, title_mark, _style(inks), _heads(inks), paper, *marks, "</svg>", ""])


def _style(inks: Mapping[str, Ink]) -> str:
    rules = [f"text {{ font-family: {SANS}; fill: {PENCIL} }}", ".name, .to, .event { font-family: " + MONO + " }"]
    rules += [f".{kind} {{ font-size: {size}px }}" for kind, size in SIZES.items()]
    rules += [".h, .name, .to { font-weight: 600 }", ".arrow { fill: none; stroke-width: 1.6 }"]
    rules += [".state { stroke-width: 1.6 }", ".group { stroke-width: 1 }", ".chip { stroke-width: 0.8 }"]
    for outcome, ink in inks.items():
        rules.append(f"text.{outcome} {{ fill: {ink.text} }}")
        rules.append(f"rect.{outcome} {{ fill: {ink.fill}; stroke: {ink.line} }}")
        rules.append(f".arrow.{outcome} {{ stroke: {ink.line} }}")
    rules.append(f"rect.chip {{ fill: {PAPER} }}")
    return "<style>\n" + "\n".join(rules) + "\n</style>"


def _heads(inks: Mapping[str, Ink]) -> str:
    shape = 'viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse"'
    heads = [
        f'<marker id="head-{outcome}" {shape} orient="auto"><path d="M0,0.5 L8,4 L0,7.5 z" fill="{ink.line}"/></marker>'
        for outcome, ink in inks.items()
    ]
    return "<defs>" + "".join(heads) + "</defs>"
