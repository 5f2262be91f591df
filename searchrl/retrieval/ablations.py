"""Retrievers that do not retrieve: controls that show whether an agent reads what it finds.

An agent that scores the same with either is not searching. Neither is ever chosen as a fallback.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from searchrl.core.episode import Passage


class RandomRetriever:
    """k different passages drawn at random.

    Scores are 0. An empty query draws too.

    Args:
        passages: the corpus.
        seed: the draw depends on it and on the query's text only, so that runs can be repeated.
    """

    def __init__(self, passages: Sequence[Passage], *, seed: int = 0) -> None:
        self.passages = tuple(passages)
        self.seed = seed

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return min(k, number of passages) passages per query."""
        count = max(0, min(k, len(self.passages)))
        keys = (f"{self.seed}\0{query}".encode("utf-8", "surrogatepass") for query in queries)
        draws = (random.Random(hashlib.sha256(key).digest()) for key in keys)
        return [draw.sample(self.passages, count) for draw in draws]


class EmptyRetriever:
    """Never finds anything, on purpose."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return no passage for any query."""
        return [[] for _ in queries]

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """No passage is found by any query."""
        return [dict.fromkeys(ids) for _ in queries]
