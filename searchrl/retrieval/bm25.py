"""BM25 over passages: the default retriever, on rank-bm25.

Statistics come from `rank_bm25.BM25Okapi`; its own scoring walks every document for every query
word, so scores are computed here from the same numbers for the documents that hold the word, and
equal its `get_scores` exactly. Corpora of a hundred thousand passages and more want another
retriever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from searchrl.core.episode import Passage
from searchrl.retrieval.progress import tracked
from searchrl.retrieval.words import tokenize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AtLeastZero = Annotated[float, Field(ge=0)]


class BM25Retriever:
    """Okapi BM25 on the words of title and text.

    A passage is found if it shares at least one word with the query, also with a score of 0: in a
    small corpus a shared word can have no weight (IDF 0), but it is still a match.

    Args:
        passages: the corpus; may be empty.
        title_weight: how often the words of the title count. 1 is title and text as one plain
            string, the setting of most published rank-bm25 figures. The default ranks better
            on all five collections we measured (docs/log.md) and finds numbered articles by
            name.
        k1: the larger, the more do repeats of a word count.
        b: discount of long passages, 0 to 1.
        epsilon: words in more than half of the passages weigh this fraction of the mean IDF.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        k1: AtLeastZero = 1.5,
        b: Annotated[float, Field(ge=0, le=1)] = 0.75,
        epsilon: AtLeastZero = 0.25,
        title_weight: Annotated[int, Field(ge=0)] = 6,
    ) -> None:
        self.passages = tuple(passages)
        self._places = {passage.id: place for place, passage in enumerate(self.passages)}
        self.okapi: Any = None
        self._postings: dict[str, list[int]] = {}
        self._weights: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]] = {}
        documents = [
            tokenize(passage.title) * title_weight + tokenize(passage.text)
            for passage in tracked(self.passages, "reading words", len(self.passages))
        ]
        if not any(documents):
            return  # rank-bm25 divides by the mean length; here nothing can ever be found
        from rank_bm25 import BM25Okapi

        counted = tracked(documents, "counting words", len(documents))
        self.okapi = BM25Okapi(counted, k1=k1, b=b, epsilon=epsilon)
        for position, frequencies in enumerate(self.okapi.doc_freqs):
            for term in frequencies:
                self._postings.setdefault(term, []).append(position)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, equal scores in corpus order.

        A query of unknown words gives `[]`, and so does k <= 0.
        """
        return [
            [
                replace(self.passages[place], score=float(scores[place]))
                for place in order[: max(k, 0)].tolist()
            ]
            for scores, order in map(self._order, queries)
        ]

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found."""
        ranks = []
        for _, order in map(self._order, queries):
            places = ((name, (order == self._places.get(name, -1)).nonzero()[0]) for name in ids)
            ranks.append({name: int(at[0]) + 1 if len(at) else None for name, at in places})
        return ranks

    def _order(self, query: str) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Scores of all passages, and the places of those with a word of the query, best first."""
        import numpy as np

        scores = np.zeros(len(self.passages))
        is_candidate = np.zeros(len(self.passages), dtype=bool)
        # Repeats count, as in rank-bm25: a word asked for twice weighs twice.
        for term in filter(self._postings.__contains__, tokenize(query)):
            positions, weights = self._weigh(term)
            scores[positions] += weights
            is_candidate[positions] = True
        candidates = np.flatnonzero(is_candidate)
        order = np.argsort(-scores[candidates], kind="stable")
        return scores, candidates[order]

    def _weigh(self, term: str) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The places where `term` occurs and its part of the scores there, computed once."""
        if term not in self._weights:
            import numpy as np

            okapi, positions = self.okapi, np.array(self._postings[term], dtype=np.intp)
            tf = np.array([okapi.doc_freqs[position][term] for position in positions.tolist()])
            doc_len = np.array([okapi.doc_len[position] for position in positions.tolist()])
            # The same operations in the same order as rank-bm25, so equal to the last bit.
            norm = okapi.k1 * (1 - okapi.b + okapi.b * doc_len / okapi.avgdl)
            weights = (okapi.idf.get(term) or 0) * (tf * (okapi.k1 + 1) / (tf + norm))
            self._weights[term] = (positions, weights)
        return self._weights[term]
