"""Secrets that this process was given, and text without them.

A secret is taken out in every form that JSON, addresses and HTML give its characters, at any depth
of escaping. Not found: a secret in pieces, in other letters (upper case, base64), or as a number.
"""

from __future__ import annotations

import html
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

MADE_UP = "EMPTY"
"""A key for servers that want none: it is also a word, and no secret."""
_ESCAPE = re.compile(r"\\|%[0-9a-fA-F]|&[#a-z]")
_SECRETS: set[str] = set()


def keep_secret(key: str) -> None:
    """Remember a key, or a header such as `Basic …`, until the process ends."""
    key = key.strip()
    scheme, _, secret = key.partition(" ")
    secrets = {secret if secret and " " not in secret else key}
    with suppress(ValueError):  # it is no base64
        if scheme.lower() == "basic":
            user, _, password = b64decode(secret).decode("utf-8", "replace").partition(":")
            secrets.add(password or user)
    # One character, such as the 1 of a switch, is in every text, and no key.
    _SECRETS.update(one for one in secrets - {MADE_UP} if len(one) > 1)


def redact(value: Any) -> Any:
    """Text, or decoded JSON, with `[key]` in place of every secret; any other value as it is."""
    if not _SECRETS:
        return value
    if isinstance(value, str):
        secrets = frozenset(_SECRETS)
        if any(secret in value for secret in secrets) or _ESCAPE.search(value):
            return _find(secrets).sub("[key]", value)
    elif isinstance(value, Mapping):
        return {redact(key): redact(inner) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        return [redact(inner) for inner in value]
    return value


@cache
def _find(secrets: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(secrets, key=len, reverse=True)
    return re.compile("|".join("".join(map(_forms, secret)) for secret in longest_first))


def _forms(character: str) -> str:
    """A pattern of one character, as it is and in its escapes."""
    plain, code = re.escape(character), ord(character)
    percent = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode("utf-8", "replace"))
    escaped = rf"\\+(?:{plain}|u(?i:{code:04x}))"
    entity = f"&#(?:0*{code}|[xX]0*(?i:{code:x}));|{re.escape(html.escape(character))}"
    return f"(?:{plain}|{escaped}|{percent}|{entity})"
