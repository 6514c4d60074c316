"""What holds for every stream, whatever it says (style: a snapshot shows what, laws are asserted)."""

import json

WHOLE = {
    "response.output_text": "text",
    "response.reasoning_summary_text": "text",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}


def to_events(text: str) -> list[dict]:
    """Read a stream of frames strictly: `event:` then `data:`, a blank line, `[DONE]` last."""
    *frames, done, rest = text.split("\n\n")
    assert done == "data: [DONE]"
    assert rest == ""
    return [_to_event(frame) for frame in frames]


def assert_laws(events: list[dict]) -> None:
    """Numbers count from 0, created is first, every added has its done and place, deltas join, one terminal is last."""
    names = [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [name for name in names if name != "response.queued"][:2] == ["response.created", "response.in_progress"]
    assert [name for name in names if name in TERMINALS] == names[-1:]
    _assert_pairs(events)
    _assert_places(events)
    _assert_parts(events)
    _assert_texts(events)
    _assert_terminal(events)


def _to_event(frame: str) -> dict:
    name, data = frame.split("\n")
    event = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event


def _assert_pairs(events: list[dict]) -> None:
    open_items: dict[int, dict] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            assert not open_items, "one item is open at a time"
            open_items[event["output_index"]] = event["item"]
        if event["type"] == "response.output_item.done":
            added = open_items.pop(event["output_index"])
            assert (added["id"], added["type"]) == (event["item"]["id"], event["item"]["type"])
    assert not open_items


def _assert_places(events: list[dict]) -> None:
    added = [event for event in events if event["type"] == "response.output_item.added"]
    places = {event["item"]["id"]: event["output_index"] for event in added}
    assert list(places.values()) == list(range(len(added)))
    for event in events:
        assert event.get("output_index") == places.get(event.get("item_id") or event.get("item", {}).get("id"))


def _assert_parts(events: list[dict]) -> None:
    open_parts: set[str] = set()
    for event in events:
        if event["type"].endswith("_part.added"):
            open_parts.add(event["item_id"])
        if event["type"].endswith("_part.done"):
            open_parts.remove(event["item_id"])
        if event["type"] == "response.output_item.done":
            assert not open_parts
    assert not open_parts


def _assert_texts(events: list[dict]) -> None:
    joined: dict[str, str] = {}
    for event in events:
        stem, _, last = event["type"].rpartition(".")
        if last == "delta":
            assert event["delta"]
            joined[event["item_id"]] = joined.get(event["item_id"], "") + event["delta"]
        if last == "done" and stem in WHOLE:
            assert event[WHOLE[stem]] == joined.pop(event["item_id"], "")
    assert not joined


def _assert_terminal(events: list[dict]) -> None:
    last = events[-1]["response"]
    assert events[-1]["type"] == f"response.{'incomplete' if last['status'] == 'cancelled' else last['status']}"
    assert {event["response"]["id"] for event in events if "response" in event} == {last["id"]}
    assert last["output"] == [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (last["error"] is not None) is (last["status"] == "failed")
    assert (last["incomplete_details"] is not None) is (last["status"] == "incomplete")
    if last["status"] == "failed":
        assert "in_progress" not in [item["status"] for item in last["output"]]
    if last["status"] == "incomplete":
        assert [item["status"] for item in last["output"][:-1]] == ["completed"] * (len(last["output"]) - 1)
        assert not last["output"] or last["output"][-1]["status"] == "incomplete"
