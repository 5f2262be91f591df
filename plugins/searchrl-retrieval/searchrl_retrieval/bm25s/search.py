"""The retriever `bm25s`: answers from a mapped index.

Owns the choice of passages among scores, which bm25s computes. Equal scores keep the order of the
corpus, and a passage without any word of the query is never found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from bm25s import BM25
from numpy.typing import NDArray

from searchrl.contracts import Passage
from searchrl_retrieval.bm25s.terms import Terms
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import find_stored


class Bm25sRetriever:
    """BM25 over the passages of an index; see `kind` for its settings.

    Safe to use from several threads.
    """

    def __init__(self, folder: Path, passages: PassageStore, analyzer: Analyzer) -> None:
        self.passages = passages
        self._analyzer = analyzer
        self._terms = Terms(folder)
        self._bm25: BM25 | None = None
        if len(self._terms):
            self._bm25 = BM25.load(folder, mmap=True, load_vocab=False)
            # Still mapped: only every slice of them is made faster.
            for name in ("data", "indices", "indptr"):
                self._bm25.scores[name] = np.asarray(self._bm25.scores[name])

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, equal scores in corpus order.

        A query of unknown words gives `[]`, and so does k <= 0.
        """
        return [self._search_one(query, k) for query in queries]

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found."""
        places = {name: self.passages.find(name) for name in ids}
        return [self._ranks_of(query, places) for query in queries]

    def stored(self, ids: Sequence[str]) -> list[Passage | None]:
        """The passages of these ids; see `places.find_stored`."""
        return find_stored(self.passages, ids)

    def _search_one(self, query: str, k: int) -> list[Passage]:
        scores = self._score(query) if k > 0 else None
        if scores is None:
            return []
        # Scores are positive where a passage has a word of the query, and 0 elsewhere.
        found = np.flatnonzero(scores)
        if len(found) > k:
            of_found = scores[found]
            least = np.partition(of_found, -k)[-k]
            found = found[of_found >= least]
        order = np.argsort(-scores[found], kind="stable")[:k]
        return [
            replace(self.passages[place], score=float(scores[place]))
            for place in found[order].tolist()
        ]

    def _ranks_of(self, query: str, places: dict[str, int | None]) -> dict[str, int | None]:
        ranks: dict[str, int | None] = dict.fromkeys(places)
        if (scores := self._score(query)) is None:
            return ranks
        for name, place in places.items():
            if place is not None and scores[place] > 0:
                better = np.count_nonzero(scores > scores[place])
                before = np.count_nonzero(scores[:place] == scores[place])
                ranks[name] = int(1 + better + before)
        return ranks

    def _score(self, query: str) -> NDArray[np.float32] | None:
        """The score of every passage; None if no passage has any word of the query.

        A word that is asked for twice weighs twice.
        """
        found = [self._terms.find(term) for term in self._analyzer.terms(query)]
        numbers = [number for number in found if number is not None]
        if self._bm25 is None or not numbers:
            return None
        scores: NDArray[np.float32] = self._bm25.get_scores_from_ids(numbers)
        return scores
