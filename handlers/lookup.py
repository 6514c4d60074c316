"""Reading what is stored, but for the rows whose terminal events have not left."""

from handlers.services import Services
from storage.rows import Lookup, Missing, ResponseRow
from storage.store import MAX_DEPTH


async def look_up(services: Services, response_id: str, limit: int = MAX_DEPTH) -> Lookup:
    """Read the chain that ends with a response, unless that one is not to be read. Raises ReadError."""
    if services.store is None:
        return Missing()
    found = await services.store.chain(response_id, int(services.clock()), limit)
    # asked last, or a row that landed while the store was read would be shown
    return Missing() if services.writes.provisional.hides(response_id) else found


async def look_up_row(services: Services, response_id: str) -> ResponseRow | Missing:
    """Read the row of a response alone, unless it is not to be read. Raises ReadError."""
    if services.store is None:
        return Missing()
    found = await services.store.row(response_id, int(services.clock()))
    return Missing() if services.writes.provisional.hides(response_id) else found
