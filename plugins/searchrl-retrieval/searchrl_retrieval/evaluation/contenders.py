"""Which retrievers are compared, under which names and with which settings.

Owns the flags `--retriever [LABEL=]NAME` and `--set LABEL.KEY=VALUE` of `searchrl retrieve-eval`.
The registry makes objects of names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from searchrl import ConfigError, parse_sets, suggest

EVERY = "retriever"
"""Settings under this name go to every retriever, as in all other commands."""


class Contender(NamedTuple):
    """A registered retriever and its settings."""

    name: str
    settings: Mapping[str, Any]


def read_contenders(names: Sequence[str], assignments: Sequence[str]) -> dict[str, Contender]:
    """The retrievers by label: `bm25`, or `plain=bm25` for one with settings of its own.

    >>> read_contenders(["bm25", "plain=bm25"], ["plain.title_weight=1"])["plain"]
    Contender(name='bm25', settings={'title_weight': 1})

    Raises:
        ConfigError: two have one label, or a setting is for none of them.
    """
    named: dict[str, str] = {}
    for text in names:
        label, is_labelled, name = text.partition("=")
        name = name if is_labelled else label
        if not label or not name or label == EVERY:
            raise ConfigError(
                f"cannot read --retriever {text!r}: expected NAME, or LABEL=NAME with a label "
                f"other than '{EVERY}'"
            )
        if label in named:
            raise ConfigError(
                f"two retrievers are called '{label}'; give one a label, "
                f"such as --retriever other={name}"
            )
        named[label] = name
    settings: dict[str, dict[str, Any]] = {label: {} for label in named}
    read = [_read_setting(text, named) for text in assignments]
    # What one retriever is told counts more than what all are told, wherever it stands.
    for label, own in sorted(read, key=lambda pair: pair[0] != EVERY):
        for one in named if label == EVERY else [label]:
            settings[one] |= own
    return {label: Contender(name, settings[label]) for label, name in named.items()}


def _read_setting(text: str, labels: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    ((label, own),) = parse_sets([text]).items()
    if label != EVERY and label not in labels:
        raise ConfigError(
            f"--set {text!r} is for none of the retrievers; expected {EVERY}.KEY=VALUE for all, "
            f"or {next(iter(labels))}.KEY=VALUE for one.{suggest(label, [*labels, EVERY])}"
        )
    if not isinstance(own, dict):
        raise ConfigError(f"cannot read --set {text!r}: expected {label}.KEY=VALUE")
    return label, own
