"""Holds the rooms to the rules: who may import whom, and how long a file or a function may be."""

import ast
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"machines", "engine", "storage", "diagrams", "handlers"}
MAY_IMPORT = {
    "machines": set(),
    "engine": set(),
    "storage": set(),
    "diagrams": {"machines"},
    "handlers": {"machines", "engine", "storage", "diagrams"},
}
NEVER_BACK = {
    "handlers/wire": ("handlers.mapping", "handlers.steps", "handlers.app"),
    "handlers/mapping": ("handlers.steps", "handlers.app"),
    "handlers/steps": ("handlers.app",),
}
LONGEST_FILE, LONGEST_FUNCTION = 300, 30


def files_in(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imported(source, package):
    """List the modules some source imports, in full, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{module}.{name.name}" for name in node.names)


def imports_of(path):
    package = ".".join(path.relative_to(ROOT).parent.parts)
    return list(imported(path.read_text(encoding="utf-8"), package))


def is_under(name, modules):
    return any(name == module or name.startswith(module + ".") for module in modules)


def long_functions(source):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION:
            yield f"{node.name}:{node.lineno} has {node.end_lineno - node.lineno + 1} lines"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_it_may(room):
    barred = (ROOMS | {"tests", "bench"}) - MAY_IMPORT[room] - {room}

    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files_in(room)
        for name in imports_of(path)
        if is_under(name, barred)
    ]

    assert offenders == []


@pytest.mark.parametrize("folder", NEVER_BACK)
def test_handlers_import_towards_the_wire_and_never_back(folder):
    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files_in(folder)
        for name in imports_of(path)
        if is_under(name, NEVER_BACK[folder])
    ]

    assert offenders == []


@pytest.mark.parametrize("room", [*sorted(ROOMS), "bench"])
def test_no_file_is_too_long(room):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files_in(room)}

    offenders = [f"{path.relative_to(ROOT)} has {n} lines" for path, n in lengths.items() if n > LONGEST_FILE]

    assert offenders == []


@pytest.mark.parametrize("room", [*sorted(ROOMS), "bench"])
def test_no_function_is_too_long(room):
    offenders = [
        f"{path.relative_to(ROOT)}: {long}"
        for path in files_in(room)
        for long in long_functions(path.read_text(encoding="utf-8"))
    ]

    assert offenders == []


def test_every_room_has_files():
    assert all(files_in(room) for room in ROOMS)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import engine.pieces", "engine.pieces"),
        ("from engine import pieces", "engine.pieces"),
        ("def f():\n    from engine.pieces import Piece", "engine.pieces.Piece"),
        ("from ..steps import admit", "handlers.steps.admit"),
        ("from . import sse", "handlers.wire.sse"),
    ],
)
def test_an_import_is_found_however_it_is_written(source, name):
    assert list(imported(source, "handlers.wire")) == [name]


def test_a_long_function_is_found():
    source = "async def long():\n" + "    pass\n" * LONGEST_FUNCTION

    assert list(long_functions(source)) == ["long:1 has 31 lines"]
