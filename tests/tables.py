"""A machine's table, taken apart for the tests that walk it."""


def rows(table):
    """Give (event, state left, state reached) of every row, one for each state it leaves."""
    for event, sources, target in table.moves:
        for state in sources if isinstance(sources, list) else [sources]:
            yield event, state, target or state


def targets(table):
    """Give the state that each (event, state left) leads to, in the order the tests show them."""
    ordered = sorted(rows(table), key=lambda row: (row[0], row[1].name))
    return {(event, state): target for event, state, target in ordered}


def reachable(table):
    """Give the states that can be reached from the initial one."""
    reached, found = set(), {table.initial}
    while found:
        reached |= found
        found = {target for _, state, target in rows(table) if state in reached} - reached
    return reached
