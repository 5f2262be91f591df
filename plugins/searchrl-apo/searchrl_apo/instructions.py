"""Instructions as text: their sentences, what an edit must keep, and near-copies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_KEPT = re.compile(r"\{\w+\}|</?\w+>")
_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s|\Z)|(?=\n)|\Z)\s*")
_NEAR = 0.99  # the similarity of words from which on a text is a near-copy


def kept_in(text: str) -> list[str]:
    """Tags such as `<search>` and placeholders such as `{tools}`, each once."""
    return list(dict.fromkeys(_KEPT.findall(text)))


def find_problem(text: str, first: str, others: Iterable[str]) -> str:
    """The reason why an edit is dropped; "" for none. `first` has what must be kept."""
    if not normalise(text).strip():
        return "empty"
    if text.startswith("@"):
        return "begins with @, which names a file"
    if set(kept_in(first)) - set(kept_in(text)):
        return "lost a tag or placeholder"
    words = normalise(text).split()
    matchers = (SequenceMatcher(None, words, normalise(one).split(), False) for one in others)
    is_near = any(one.quick_ratio() >= _NEAR and one.ratio() >= _NEAR for one in matchers)
    return "near-copy" if is_near else ""


def normalise(text: str) -> str:
    """The words in lower case, with a space around each."""
    words = re.findall(r"[\w{}<>/]+", text.lower())
    return f" {' '.join(words)} "


def split(text: str) -> list[str]:
    """The sentences and lines of a text, each with the white space behind it."""
    return _SENTENCE.findall(text)


def join(sentences: Iterable[str]) -> str:
    """The text of sentences; undoes `split`."""
    return "".join(one if one[-1:].isspace() else f"{one} " for one in sentences).strip()


def mask(text: str) -> str:
    """Write tags as ‹tag›, so that a model can quote them between its own."""
    return _KEPT.sub(lambda match: match[0].replace("<", "‹").replace(">", "›"), text)
