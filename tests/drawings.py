"""A machine's drawings, read back: which edges they show, as (event, state left, state reached)."""

import re
from collections import Counter
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
NODE = re.compile(r'^ +(\w+)\["(.+)"\]:::\w+$', re.MULTILINE)
ARROW = re.compile(r'^ +(\w+) -->(?:\|"(.+)"\|)? (\w+)$', re.MULTILINE)


def marks_in_svg(drawn, *names):
    """List the marks that have exactly these data attributes, and what they stand for."""
    for mark in ET.fromstring(drawn).iter(f"{SVG}g"):  # noqa: S314 our own text
        stands_for = {name.removeprefix("data-"): value for name, value in mark.attrib.items() if name != "class"}
        if stands_for.keys() == set(names):
            yield mark, tuple(stands_for[name] for name in names)


def edges_in_svg(drawn):
    """Count the edges; a refusal that leaves no state has no states."""
    stateless = [(event, "", "") for _, (event,) in marks_in_svg(drawn, "event")]
    return Counter([*stateless, *(edge for _, edge in marks_in_svg(drawn, "event", "from", "to"))])


def edges_in_mermaid(drawn):
    """Count the edges: of arrows with words, of arrows to a box that has the words, of boxes that stand alone."""
    nodes = {name: words.split("<br/>") for name, words in NODE.findall(drawn)}
    edges = Counter()
    for source, words, end in ARROW.findall(drawn):
        reached, *told = nodes[end.removeprefix("AT_")]
        labels = words.split("<br/>") if words else told
        edges.update((to_event(label), source.removeprefix("AT_"), reached) for label in labels)
    for name, (reached, *told) in nodes.items():
        if name.startswith("MANY_"):
            edges.update((to_event(told[0]), source, reached) for source in ", ".join(told[2:]).split(", "))
        if name == "STATELESS":
            edges.update((to_event(label), "", "") for label in told)
    return edges


def to_event(label):
    """Read the event of a label such as `404 model_unknown (model_not_found)`."""
    return re.fullmatch(r"(?:\d{3} )?(\w+)(?: \(\w+\))?", label)[1]
