"""Runs last: every row of every machine was fired by the product's own objects in some test."""

import pytest

from machines.binding import BINDING
from machines.exchange import DURABLE, EXCHANGE
from machines.job import JOB
from machines.output import OUTPUT
from machines.provisional import PROVISIONAL
from machines.write import WRITE


def rows(table):
    return {
        (event, state.name, target.name)
        for event, sources, target in table.moves
        for state in (sources if isinstance(sources, list) else [sources])
    }


def test_every_move_of_every_machine_was_fired(moves_made, request):
    asked = {argument for argument in request.config.args if "::" in argument}
    if asked or request.config.getoption("keyword") or request.config.args != request.config.getini("testpaths"):
        pytest.skip("only some tests were run")

    # what both tables of the exchange have is one row, so a request of either fires it
    shared = rows(EXCHANGE) & rows(DURABLE)
    fired = {table.name: {move[1:] for move in moves_made if move[0] == table.name} for table in (EXCHANGE, DURABLE)}

    assert shared - fired[EXCHANGE.name] - fired[DURABLE.name] == set()
    assert rows(EXCHANGE) - shared - fired[EXCHANGE.name] == set()
    assert rows(DURABLE) - shared - fired[DURABLE.name] == set()
    for table in (OUTPUT, WRITE, PROVISIONAL, BINDING, JOB):
        assert {(table.name, *row) for row in rows(table)} - moves_made == set()
