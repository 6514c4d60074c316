"""Runs last: every row of every machine was fired by the product's own objects in some test, and nothing else was."""

import pytest

from diagrams.draw import SKETCHES
from tests.tables import Faults, compare_fired


def test_every_move_of_every_machine_was_fired(moves_made, request):
    asked = {argument for argument in request.config.args if "::" in argument}
    if asked or request.config.getoption("keyword") or request.config.args != request.config.getini("testpaths"):
        pytest.skip("only some tests were run")

    assert compare_fired([sketch.table for sketch in SKETCHES], moves_made) == Faults(missing=set(), foreign=set())
