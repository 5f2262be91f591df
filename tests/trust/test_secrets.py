"""Secrets: every form in which one comes back is taken out of text and of decoded JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from unittest.mock import Mock
from urllib.parse import quote

import pytest

from searchrl.engine.rollout.boundary import classify
from searchrl.rewards.scorer import _failure_of as failure_of
from searchrl.trust.secrets import keep_secret, redact
from searchrl.trust.texts import clean

KEY = "gAAA/b+c\\d\"e'f=="


def as_codes(text: str) -> str:
    return "".join(f"\\u{ord(character):04X}" for character in text)


@pytest.mark.parametrize(
    "write",
    [
        str,
        json.dumps,
        lambda key: json.dumps(json.dumps(key)).replace("/", "\\/"),
        as_codes,
        lambda key: json.dumps(as_codes(key[:2]) + key[2:]),
        lambda key: quote(quote(key, safe="")),
        lambda key: quote(key, safe="").replace("%2F", "%2f"),
        html.escape,
        lambda key: key.replace("+", "&#43;").replace("/", "&#x2F;"),
    ],
)
def test_a_secret_is_taken_out_in_every_form_and_at_any_depth(write: Callable[[str], str]) -> None:
    keep_secret("another")
    keep_secret(KEY)
    told = redact(f"your key {write(KEY)} is wrong")
    assert told.replace('"', "").replace("\\", "") == "your key [key] is wrong"
    value = {KEY: [{"a": f"it {KEY}", "n": 1}, None, True, 0.5], "b": "\\u0074 %41 &#65;"}
    changed = {"[key]": [{"a": "it [key]", "n": 1}, None, True, 0.5], "b": "\\u0074 %41 &#65;"}
    assert redact(value) == changed


@pytest.mark.parametrize(
    ("key", "text", "redacted"),
    [
        ("Basic bWU6cGFzcw==", "me, pass, bWU6cGFzcw==", "me, [key], [key]"),
        ("Basic c2stMTo=", "sk-1:", "[key]:"),
        ("Basic !!", "Basic !!", "Basic [key]"),
        ("Token ab", "Token ab", "Token [key]"),
        ("three words here", "words three words here", "words [key]"),
        ("EMPTY", "EMPTY", "EMPTY"),
        ("1", "1", "1"),
    ],
)
def test_the_secret_of_a_header_and_no_made_up_one(key: str, text: str, redacted: str) -> None:
    keep_secret(key)
    assert redact(text) == redacted


def test_a_secret_in_an_error_of_a_plugin_is_in_no_failure_and_on_no_terminal() -> None:
    keep_secret("s3#")
    error = ValueError("wrong key s3#")
    world = Mock(who={"env": "an env", "retriever": "a retriever", "protocol": "a protocol"})
    for failure in (failure_of(error, "a plugin"), classify(error, world, "a player")):
        assert "wrong key [key]" in failure.message and "wrong key [key]" in failure.detail
        assert "s3#" not in failure.message + failure.detail
    assert clean("wrong key s3#") == "wrong key [key]"
