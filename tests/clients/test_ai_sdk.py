"""What the AI SDK does that its page does not show."""

import pytest

from tests.clients import installed
from tests.live import ROOT

pytestmark = pytest.mark.timeout(300)  # clients are slow to start


def test_each_provider_resends_a_task_in_its_own_way_and_each_is_understood(server):
    program = (ROOT / "tests/clients/programs/references.mjs").read_text()

    assert installed.run_node(program, SERVER=server.url).splitlines() == [
        "It says: Rain in Oslo user,item_reference,function_call,function_call_output",
        "It says: Rain in Oslo user,function_call,function_call_output",
        "It says: Rain in Oslo message,reasoning,function_call,function_call_output",
    ]
