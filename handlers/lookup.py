"""Reading stored chains."""

from handlers.services import Services
from storage.rows import Lookup, Missing
from storage.store import MAX_DEPTH


async def look_up(services: Services, response_id: str, limit: int = MAX_DEPTH) -> Lookup:
    """Read the chain that ends with a response, unless that one is not to be read. Raises ReadError."""
    if services.store is None:
        return Missing()
    found = await services.store.chain(response_id, int(services.clock()), limit)
    # asked last, or a row that landed while the store was read would be shown
    return Missing() if services.writes.provisional.hides(response_id) else found
