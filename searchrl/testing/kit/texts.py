"""Texts on which plugins are tried: a corpus, queries, and turns that broke programs before."""

from __future__ import annotations

import tomllib
from pathlib import Path

from searchrl.core.episode import Passage

_TABLE = tomllib.loads(
    Path(__file__).resolve().parents[2].joinpath("assets", "probe_texts.toml").read_text("utf-8")
)

PASSAGES: tuple[Passage, ...] = tuple(Passage(**row) for row in _TABLE["passages"])
"""The corpus: titles and none, two equal texts, an empty one, several scripts, Unicode ids."""

QUERIES: tuple[str, ...] = tuple(_TABLE["queries"])
"""Queries that match."""

HARD_QUERIES: tuple[tuple[str, str], ...] = tuple(
    (row["text"] * row.get("times", 1), row["why"]) for row in _TABLE["hard_queries"]
)
"""Queries that a model may well write, and why each is hard."""

HARD_TEXTS: tuple[str, ...] = tuple(r["text"] * r.get("times", 1) for r in _TABLE["hard_texts"])
"""Turns: empty, blank, huge, control tokens, format strings, numbers out of range, scripts."""
