from msgspec import json

from storage.rows import ExchangeRow, ResponseRow


def row(response_id="resp_1", **changes):
    ancestors = changes.get("ancestors", ())
    return ResponseRow(
        **{
            "id": response_id,
            "previous_response_id": ancestors[-1] if ancestors else None,
            "ancestors": ancestors,
            "created_at": 100,
            "expires_at": None,
            "model": "tiny",
            "status": "completed",
            "instructions": None,
            "input_json": "[]",
            "output_json": "[]",
            "usage_json": "{}",
            "config_json": "{}",
            **changes,
        }
    )


def line_of(length, **changes):
    """Make a chain: each row the answer to the one before."""
    ids = [f"resp_{number}" for number in range(length)]
    return [row(response_id, ancestors=tuple(ids[:place]), **changes) for place, response_id in enumerate(ids)]


def trace(exchange_id="ex_1", **changes):
    return ExchangeRow(
        **{
            "id": exchange_id,
            "ended_at": 100,
            "machine": "exchange",
            "method": "POST",
            "path": "/v1/responses",
            "state": "DONE",
            "event": "row_written",
            "status": 200,
            "model": "tiny",
            "response_id": "resp_1",
            **moved(("route_found", "ROUTING", "VALIDATING", 0.1), ("row_written", "PERSISTING", "DONE", 2.0)),
            "facts": '{"ahead":3,"first_token_ms":12.5}',
            **changes,
        }
    )


def moved(*moves):
    """Give the fields of a trace for some moves: event, from, to and milliseconds of each."""
    return {"moves": json.encode([move[:3] for move in moves]).decode(), "ms": tuple(move[3] for move in moves)}
