"""Writes a Mermaid and an SVG drawing of every machine. `python -m diagrams.draw`; `--check` tells which are stale."""

import argparse
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from diagrams.layout import to_svg
from diagrams.mermaid import to_mermaid
from diagrams.sketch import Sketch
from machines.binding import BINDING, OPERATOR_REFUSALS
from machines.binding import State as Model
from machines.exchange import DURABLE, DURABLE_FAILURES, EXCHANGE, FAILURES, REFUSALS, TERMINALS, State
from machines.job import JOB
from machines.job import State as Job
from machines.output import OUTPUT
from machines.provisional import PROVISIONAL
from machines.provisional import State as Row
from machines.write import WRITE
from machines.write import State as Writing

HERE = Path(__file__).parent

OUTCOMES: dict[Enum, str] = {
    State.AWAITING_WRITE: "delayed",
    State.HELD: "delayed",
    State.REFUSED: "refused",
    State.FAILING: "failed",
    State.FAILED: "failed",
    State.ABANDONED: "abandoned",
}
SKETCHES = (
    Sketch(EXCHANGE, "one request, from its route to its row", OUTCOMES, REFUSALS, FAILURES, TERMINALS),
    Sketch(
        DURABLE,
        "one request with INTERLOCK_DURABLE=1, or for a background response: its row before its terminal event",
        OUTCOMES,
        REFUSALS,
        DURABLE_FAILURES,
        TERMINALS,
    ),
    Sketch(
        JOB,
        "a background response, whoever reads it",
        {Job.FAILED: "failed", Job.CANCELLED: "abandoned"},
    ),
    Sketch(OUTPUT, "the output items of one response while the model decodes"),
    Sketch(
        WRITE,
        "the write of one stored response",
        {
            Writing.LATE: "delayed",
            Writing.WEDGED: "failed",
            Writing.EXPIRED: "failed",
            Writing.FAILED: "failed",
            Writing.LOST: "failed",
            Writing.RELEASED: "abandoned",
        },
    ),
    Sketch(
        PROVISIONAL,
        "a row that is written before its terminal event has left",
        {Row.UNDELETED: "failed", Row.LEFT: "failed", Row.DELETED: "abandoned"},
    ),
    Sketch(
        BINDING,
        "one model object, from its load to its end",
        {Model.BROKEN: "failed", Model.RETIRED: "abandoned"},
        OPERATOR_REFUSALS,
    ),
)


def to_files(sketches: Sequence[Sketch]) -> dict[str, str]:
    """Draw every machine: file names and what is in them."""
    kinds = {"mmd": to_mermaid, "svg": to_svg}
    return {f"{s.table.name}.{kind}": draw(s) for s in sketches for kind, draw in kinds.items()}


def to_stale(files: dict[str, str], folder: Path) -> list[str]:
    """Name the files that are not in the folder as they would be drawn now."""
    return [
        name
        for name, drawn in files.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != drawn.encode()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the drawings, or check them."""
    parser = argparse.ArgumentParser(prog="python -m diagrams.draw", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a drawing is stale or missing")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="another folder than diagrams/")
    asked = parser.parse_args(arguments)
    files = to_files(SKETCHES)
    stale = to_stale(files, asked.out)
    if asked.check:
        for name in stale:
            print(f"{asked.out / name} is stale or missing; to draw it: python -m diagrams.draw", file=sys.stderr)
        return 1 if stale else 0
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, drawn in files.items():
        (asked.out / name).write_bytes(drawn.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
