"""The settings of writes, chains and traces: which fall back to their default, and which are refused."""

import pytest

from handlers.settings import Settings, SettingsError, from_env

NAMES = {
    "write_wait_ms": "MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS",
    "persist_wait_ms": "MLX_POST_COMMIT_PERSIST_TIMEOUT_MS",
    "persist_hard_ms": "MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS",
    "marker_ttl_ms": "MLX_HARD_TIMEOUT_MARKER_TTL_MS",
}
MAY_BE_ZERO = {"persist_hard_ms", "marker_ttl_ms"}


def test_the_defaults_are_those_of_the_contract():
    read = from_env({})

    assert [getattr(read, field) for field in NAMES] == [2000, 5000, 60_000, 300_000]


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize(("text", "meant"), [("1", 1), (" 250 ", 250), ("1.5", 2), ("2e3", 2000), ("0.2", 1)])
def test_a_time_is_any_number_of_milliseconds(field, text, meant, caplog):
    assert getattr(from_env({NAMES[field]: text}), field) == meant
    assert caplog.records == []


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("text", ["soon", "NaN", "-1", "-0.5", "inf", "1e400", "5 s", "0x10", "9" * 400])
def test_a_time_that_is_none_falls_back_to_the_default_and_says_so_once(field, text, caplog):
    assert getattr(from_env({NAMES[field]: text}), field) == getattr(Settings(), field)

    (record,) = caplog.records
    assert NAMES[field] in record.message


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("text", ["", "   "])
def test_a_time_left_blank_is_the_default_without_a_word(field, text, caplog):
    assert getattr(from_env({NAMES[field]: text}), field) == getattr(Settings(), field)
    assert caplog.records == []


@pytest.mark.parametrize("field", NAMES)
def test_zero_switches_the_breaker_and_its_markers_off_and_is_no_time_to_wait(field):
    meant = 0 if field in MAY_BE_ZERO else getattr(Settings(), field)

    assert getattr(from_env({NAMES[field]: "0"}), field) == meant


@pytest.mark.parametrize(
    ("name", "text", "field", "meant"),
    [
        ("INTERLOCK_MAX_CHAIN_DEPTH", "5", "max_chain_depth", 5),
        ("INTERLOCK_SWEEP_SECONDS", "60", "sweep_seconds", 60),
        ("INTERLOCK_TRACE_RETENTION_SECONDS", "0", "trace_retention_seconds", 0),
        ("MLX_RESPONSE_RETENTION_SECONDS", "60", "retention_seconds", 60),
        ("MLX_MAX_QUEUE_DEPTH_PER_MODEL", "3", "queue_limit", 3),
        ("INTERLOCK_HEARTBEAT_SECONDS", "5", "heartbeat_seconds", 5),
        ("INTERLOCK_IMAGES", "refuse", "images", "refuse"),
        ("INTERLOCK_IMAGES", "note", "images", "note"),
        ("INTERLOCK_DURABLE", "1", "durable", True),
        ("INTERLOCK_DURABLE", "True", "durable", True),
        ("INTERLOCK_DURABLE", "0", "durable", False),
        ("INTERLOCK_DURABLE", "false", "durable", False),
        ("INTERLOCK_DURABLE", " ", "durable", False),
    ],
)
def test_a_setting_is_read_from_its_name(name, text, field, meant):
    assert getattr(from_env({name: text}), field) == meant


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INTERLOCK_MAX_CHAIN_DEPTH", "0"),
        ("INTERLOCK_SWEEP_SECONDS", "0"),
        ("INTERLOCK_TRACE_RETENTION_SECONDS", "-1"),
        ("INTERLOCK_IMAGES", "describe"),
        ("INTERLOCK_DURABLE", "yes"),
        ("INTERLOCK_DURABLE", "2"),
    ],
)
def test_any_other_setting_that_cannot_be_used_is_refused_by_name(name, text):
    with pytest.raises(SettingsError, match=name):
        from_env({name: text})
