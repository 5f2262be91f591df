"""Reformulations on disk: what was asked once is never asked again.

Owns the key of a reformulation and how it is written as JSON. Wraps any reformulator. The file is
the core's `JsonCache`, so several processes may share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from searchrl.api_client import JsonCache
from searchrl_control.reformulate.contract import Asked, Reformulator, Rewrite


class Kept:
    """A reformulator whose answers are kept.

    Args:
        inner: who is asked what is not kept yet.
        path: the file; it is made if it is not there.

    Raises:
        EndpointFailure: the file cannot be used.
    """

    def __init__(self, inner: Reformulator, path: Path) -> None:
        self._inner = inner
        self._cache = JsonCache(path, section="env")
        self.key = inner.key

    def narrow(self, asked: Asked) -> Rewrite:
        """See `Reformulator`."""
        return self._ask("narrow", self._inner.narrow, asked)

    def broaden(self, asked: Asked) -> Rewrite:
        """See `Reformulator`."""
        return self._ask("broaden", self._inner.broaden, asked)

    def _ask(self, kind: str, ask: Callable[[Asked], Rewrite], asked: Asked) -> Rewrite:
        key = JsonCache.key(self.key, _body(kind, asked))
        kept = _read(self._cache.get(key))
        if kept is None:
            kept = ask(asked)
            self._cache.put(key, {"text": kept.text, "weights": dict(kept.weights)})
        return kept


def _body(kind: str, asked: Asked) -> dict[str, Any]:
    """All that an answer can depend on; ids and texts, so that an edited corpus is asked anew."""
    return {
        "kind": kind,
        "question": asked.question,
        "weights": dict(asked.weights),
        "passages": [[p.id, p.title, p.text, p.score] for p in asked.passages],
    }


def _read(value: Any) -> Rewrite | None:
    """A kept answer; None if there is none, or if it is damaged."""
    if not isinstance(value, Mapping):
        return None
    text, weights = value.get("text"), value.get("weights")
    if not isinstance(text, str) or not isinstance(weights, Mapping):
        return None
    if not all(
        isinstance(k, str) and isinstance(v, int | float) and math.isfinite(v)
        for k, v in weights.items()
    ):
        return None
    return Rewrite(text, {term: float(weight) for term, weight in weights.items()})
