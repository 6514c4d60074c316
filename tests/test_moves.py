"""Runs last: every row of every machine was fired by a request that some test made."""

import pytest

from machines.exchange import EXCHANGE
from machines.output import OUTPUT


def test_every_move_of_every_machine_was_fired(moves_made, request):
    asked = {argument for argument in request.config.args if "::" in argument}
    if asked or request.config.getoption("keyword") or request.config.args != request.config.getini("testpaths"):
        pytest.skip("only some tests were run")

    declared = {(event, state.name) for table in (EXCHANGE, OUTPUT) for event, state in table.edges}

    assert declared - moves_made == set()
