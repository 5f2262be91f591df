"""The retriever `bm25s`: answers from a mapped index.

Owns how the scores of terms become those of a query. Equal scores keep the order of the corpus, and
a passage without any word of the query is never found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bm25s import BM25
from numpy.typing import NDArray

from searchrl.contracts import Passage
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.index.passages import PassageStore, Stored, find_best, find_ranks


class Bm25sRetriever(Stored):
    """BM25 over the passages of an index; see `kind` for its settings.

    Safe to use from several threads.
    """

    def __init__(self, folder: Path, passages: PassageStore, analyzer: Analyzer) -> None:
        self.passages = passages
        self.analyzer = analyzer
        self._numbers: Mapping[str, int] = {}
        if (folder / "params.index.json").is_file():  # else no passage has a word
            bm25 = BM25.load(folder, mmap=True)
            self._numbers = bm25.vocab_dict
            # Still mapped: only every slice of them is made faster.
            self._data, self._indices, self._starts = (
                np.asarray(bm25.scores[name]) for name in ("data", "indices", "indptr")
            )

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, equal scores in corpus order.

        A query of unknown words gives `[]`, and so does k <= 0.
        """
        if k <= 0:
            return [[] for _ in queries]
        found = []
        for query in queries:
            scores = self.score(Counter(self.analyzer.terms(query)))
            best = find_best(scores, k)
            found.append([replace(self.passages[at], score=float(scores[at])) for at in best])
        return found

    def score(self, weights: Mapping[str, float]) -> NDArray[np.float32]:
        """The score [N] of every passage for index terms with weights (see `Analyzer.terms`).

        A score is the sum of the scores of the terms, times their weights; 0 without any of them.
        """
        scores: NDArray[Any] = np.zeros(len(self.passages), dtype=np.float32)
        for term, weight in weights.items():
            if (number := self._numbers.get(term)) is not None:
                within = slice(self._starts[number], self._starts[number + 1])
                scores[self._indices[within]] += np.float32(weight) * self._data[within]
        return scores

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found."""
        places = self.places(ids)
        found = []
        for query in queries:
            scores = self.score(Counter(self.analyzer.terms(query)))
            known = {name: at for name, at in places.items() if at is not None and scores[at] > 0}
            found.append({**dict.fromkeys(ids, None), **find_ranks(scores, known)})
        return found
