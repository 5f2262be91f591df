"""Hostile values: texts, numbers and nestings that break readers, and small edits of good text.

Owns what is drawn, never where it is put: the modules beside it put values into configs, rows,
expressions and command lines. Everything is drawn from the `Random` that is passed.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from random import Random
from typing import Any

LONG_NAME = "n" * 300
"""Longer than a file's name may be."""

WORDS = (
    "", " ", "\t", "a", "em", "format", "corpus", "regulations", "0", "1", "-1", "true", "null",
    "~",
    "nan", ".nan", "inf", "-.inf", "1e309", "1e-400", "0x1F", "1_000", "9" * 30, "9" * 5000,
    "1e999999999", "[]", "{}", "[1, [2, {a: 3}]]", "{a: {b: {c: 1}}}", "[" * 3000, "{a: " * 1500,
    "---", "...", "!!python/object:os.system", "!!binary x", "!!int x", "!!float .", "&a", "*a",
    "&a [*a, *a]", "|", ">", "%TAG", "@", "@missing.txt", "@.", "=", "a=b", "a.b", "..", "../..",
    "/dev/null", "/", "~nobody/x", "con", "a:b", ":", "gym:", "gym:x", "gym:a:b", "searchrl:em",
    "é", "日本語", "ﬁ", "\u202eabc", "\u0000", "\x1b[31mred\x1b[0m", "\x85", "\u2028", "\ufeff",
    "\ufffe",
    "💥" * 3, "\udcff", "a\ud800b", "\r\n", "a\nb\nc", "\n" * 60, "'", '"', "`", "$(ls)", "%s%n",
    "{0}", "{name}", "[red]x[/]", "[/]", "</think>", "<answer>", LONG_NAME, "x" * 20_000,
)  # fmt: skip

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 0.0, -0.0, 0.5, 1.0, 1.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"),
    float("-inf"), 2**31, 2**32, 2**63, 2**64, -(2**63), 10**30, 10**390, 10**4000, 100_000,
    1_000_000,
    True, False,
)  # fmt: skip


def draw_text(random: Random) -> str:
    """A listed text, or a short one of any characters."""
    if random.random() < 0.8:
        return random.choice(WORDS)
    size = random.randrange(12)
    pool = string.printable if random.random() < 0.5 else None
    return "".join(random.choice(pool) if pool else _any_char(random) for _ in range(size))


def draw_value(random: Random, depth: int = 0) -> Any:
    """Anything that YAML and JSON can hold."""
    kind = random.randrange(10 if depth < 3 else 8)
    if kind < 4:
        return draw_text(random)
    if kind < 7:
        return random.choice(NUMBERS)
    if kind == 7:
        return None
    if kind == 8:
        return [draw_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {draw_text(random): draw_value(random, depth + 1) for _ in range(random.randrange(4))}


def nest(random: Random) -> Any:
    """A list or mapping nested a few or some hundred times."""
    value: Any = 1
    for _ in range(random.choice((3, 20, 90, 400))):
        value = {"a": value} if random.random() < 0.5 else [value]
    return value


def misspell(random: Random, word: str) -> str:
    """The word with one letter doubled, dropped, changed or moved."""
    if not word:
        return "x"
    at = random.randrange(len(word))
    edits = (
        word[:at] + word[at] + word[at:],
        word[:at] + word[at + 1 :],
        word[:at] + random.choice(string.ascii_letters + " .-_:é") + word[at + 1 :],
        word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :],
        word.upper(),
        word + random.choice(("s", "_", " ", "\n", "2")),
    )
    return random.choice(edits)


def damage_text(random: Random, text: str, pieces: Sequence[str] = WORDS) -> str:
    """The text after one to three edits: a part cut, doubled, moved, or a hostile piece put in."""
    for _ in range(random.randrange(1, 4)):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((0, 1, 1, 2, 5, 20)))
        part = random.choice((*pieces, "", text[start:end] * 2))
        text = text[:start] + part + text[end:]
    return text


def damage_bytes(random: Random, data: bytes) -> bytes:
    """A file after an accident of transport: its encoding, its ends, its length or some bytes."""
    kind = random.randrange(12)
    if kind == 0:
        return b"\xef\xbb\xbf" + data
    if kind == 1:
        return data.replace(b"\n", b"\r\n")
    if kind == 2:
        return data.replace(b"\n", b"\r")
    if kind == 3:
        encoding = random.choice(("utf-16", "utf-16-le", "utf-32", "cp037"))
        return data.decode("utf-8", "replace").encode(encoding, "replace")
    if kind == 4:
        return data[: random.randrange(len(data) + 1)]
    if kind == 5:
        return b""
    if kind == 6:
        return data + data
    if kind == 7:
        return bytes(random.randrange(256) for _ in range(200))
    if kind == 8:
        return data.replace(b" ", b"\t")
    at = random.randrange(len(data) + 1)
    bad = random.choice((b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x1b", b"\x7f", b"\x00" * 9))
    return data[:at] + bad + data[at + random.randrange(3) :]


def _any_char(random: Random) -> str:
    top = random.choice((0x80, 0x300, 0x3000, 0x10FFFF))
    return chr(random.randrange(top))
