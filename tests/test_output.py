"""Walks the output table: an item that was opened is closed, by whichever event it is left."""

import pytest
from transitions import MachineError

from machines.driver import Driven, fire
from machines.output import HOLDS, MACHINE, OUTPUT, SAYS, Item
from tests.tables import reachable, targets

TARGETS = targets(OUTPUT)
EDGES = list(TARGETS)


class Subject(Driven):
    """Stands in a state and notes what the machine calls."""

    def __init__(self, state):
        super().__init__(OUTPUT)
        self.state = state
        self.called = []

    def open_item(self, _):
        self.called.append(("open", self.state))

    def close_item(self, _):
        self.called.append(("close", self.state))


@pytest.mark.parametrize("item", Item)
def test_an_item_has_a_way_out_unless_it_is_final(item):
    ways_out = [event for event, left in OUTPUT.edges if left is item]

    assert bool(ways_out) is (item not in OUTPUT.final)


def test_every_item_is_reached_from_the_initial_one():
    assert reachable(OUTPUT) == set(Item)


def test_every_item_that_is_neither_the_first_nor_the_last_is_said():
    assert set(SAYS) == set(HOLDS) == set(Item) - OUTPUT.final - {OUTPUT.initial}


@pytest.mark.parametrize("says", SAYS.values())
def test_what_an_item_opens_it_closes_in_the_opposite_order(says):
    opened = [event.removesuffix(".added") for event in says.opening]
    closed = [event.removesuffix(".done") for event in says.closing]
    grown = says.growing.removesuffix(".delta")

    assert closed == [grown, *reversed(opened)]


@pytest.mark.parametrize("item", sorted(set(Item) - OUTPUT.final, key=lambda item: item.name))
@pytest.mark.parametrize("event", ["output_ended", "output_cut"])
def test_the_output_may_end_at_any_item(event, item):
    assert TARGETS[event, item] in OUTPUT.final


@pytest.mark.parametrize(("event", "item"), EDGES)
def test_a_move_leads_where_its_row_says(event, item):
    subject = Subject(item)

    fire(MACHINE, subject, event)

    assert subject.state is TARGETS[event, item]
    assert [move[:3] for move in subject.trace] == [(event, item, subject.state)]


@pytest.mark.parametrize("item", Item)
def test_an_event_without_a_row_is_refused_and_the_item_stays(item):
    illegal = [event for event, _ in EDGES if (event, item) not in OUTPUT.edges]

    for event in illegal:
        subject = Subject(item)
        with pytest.raises(MachineError):
            fire(MACHINE, subject, event)
        assert subject.state is item
        assert subject.called == []


@pytest.mark.parametrize(("event", "item"), EDGES)
def test_the_item_that_is_left_is_closed_before_the_next_is_opened(event, item):
    subject, target = Subject(item), TARGETS[event, item]
    closed = [("close", item)] if item in SAYS else []
    opened = [("open", target)] if target in SAYS else []

    fire(MACHINE, subject, event)

    assert subject.called == closed + opened
