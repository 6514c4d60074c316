"""Settings are read once, and a wrong one is told in a sentence."""

from types import SimpleNamespace

import pytest

from handlers import gunicorn_conf
from handlers.settings import Settings, SettingsError, from_env, to_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("s3cret", {"default": "s3cret"}),
        ("  s3cret\n", {"default": "s3cret"}),
        ("anna=a,ci=b", {"anna": "a", "ci": "b"}),
        ("anna=a\nci=b,c\n", {"anna": "a", "ci": "b,c"}),
        ("anna=a=b", {"anna": "a=b"}),
        ("YWJj==", {"default": "YWJj=="}),
        ("YWJj=", {"default": "YWJj="}),
        ("anna=YWJj==", {"anna": "YWJj=="}),
        ("a/b=c", {"default": "a/b=c"}),
        ("", {}),
        (" \n ", {}),
    ],
)
def test_tokens_are_read_with_their_names(text, tokens):
    assert from_env({"INTERLOCK_TOKEN": text}).tokens == tokens


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["s3cret", "an0ther"], "Two tokens are named 'default'"),
        (["anna=s3cret", "anna=an0ther"], "Two tokens are named 'anna'"),
        (["anna=s3cret", "ci=s3cret"], "The token 'ci' is that of another name"),
        (["anna=s3 cret"], "The token 'anna' has a character"),
        (["anna=s3\x00cret"], "The token 'anna' has a character"),
    ],
)
def test_a_wrong_token_is_told_and_never_shown(given, sentence):
    with pytest.raises(SettingsError) as raised:
        to_tokens(given)

    assert str(raised.value).startswith(sentence)
    assert "cret" not in str(raised.value)
    assert "an0" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("*", ("*",)),
        ("https://App.example, http://localhost:3000/", ("https://app.example", "http://localhost:3000")),
        ("chrome-extension://abc", ("chrome-extension://abc",)),
    ],
)
def test_origins_are_read_as_browsers_send_them(text, origins):
    assert from_env({"INTERLOCK_CORS": text}).cors == origins


@pytest.mark.parametrize("text", ["app.example", "https://", "https://app.example/page", "null", "https://*.example/"])
def test_what_is_no_origin_is_told(text):
    with pytest.raises(SettingsError, match="INTERLOCK_CORS takes origins such as"):
        from_env({"INTERLOCK_CORS": text})


@pytest.mark.parametrize(("text", "host"), [("0.0.0.0", "0.0.0.0"), ("[::1]", "::1"), ("box.local", "box.local")])  # noqa: S104
def test_a_host_is_an_address_or_a_name(text, host):
    assert from_env({"INTERLOCK_HOST": text}).host == host


@pytest.mark.parametrize("text", ["127.0.0.1 80", "http://box", "a,b"])
def test_what_is_no_host_is_told(text):
    with pytest.raises(SettingsError, match="INTERLOCK_HOST takes an address"):
        from_env({"INTERLOCK_HOST": text})


@pytest.mark.parametrize(
    ("host", "tokens", "is_refused"),
    [
        ("127.0.0.1", {}, False), ("::1", {}, False), ("localhost", {}, False),
        ("0.0.0.0", {}, True), ("::", {}, True), ("192.0.2.7", {}, True), ("box.local", {}, True),  # noqa: S104
        ("0.0.0.0", {"default": "x"}, False),  # noqa: S104
    ],
)  # fmt: skip
def test_only_with_a_token_may_others_connect(monkeypatch, host, tokens, is_refused):
    monkeypatch.setattr(gunicorn_conf, "settings", Settings(tokens=tokens))
    cfg = SimpleNamespace(workers=1, worker_class_str="asgi", preload_app=False, address=[(host, 8080)])

    assert ("set INTERLOCK_TOKEN" in (gunicorn_conf._fault(cfg) or "")) is is_refused
