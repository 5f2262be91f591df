"""The retriever `bm25s`: its settings, its build and its opening.

The terms of a title count several times. Scores are computed and saved by the library bm25s, in
Lucene's variant (Kamphuis et al. 2020, "Which BM25 do you mean?"):

    score(t, d) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5)) * tf / (tf + k1 * (1 - b + b * |d| / avg))
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from searchrl import ConfigError, suggest
from searchrl.contracts import Passage, Retriever
from searchrl.retrieval import tracked
from searchrl_retrieval.bm25s.words import LANGUAGES, PLAIN, Analyzer
from searchrl_retrieval.index.folder import Index
from searchrl_retrieval.index.passages import PassageStore, Stored, find_best
from searchrl_retrieval.index.places import IndexFactory


@dataclass(frozen=True)
class Bm25s:
    """The `IndexKind` of `bm25s`. The defaults are the same for every collection.

    Args:
        title_weight: how often the words of the title count.
        k1: how soon repeats of a word stop counting.
        b: how much long passages are discounted, 0 to 1.
        language: whose stop words are left out and whose endings are cut off; `none` leaves words
            as they are. Scripts without spaces give pairs of characters in any case.
    """

    title_weight: Annotated[int, Field(ge=0)] = 6
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    language: str = "english"

    name: ClassVar[str] = "bm25s"
    keep_from: ClassVar[int] = 10_000

    def __post_init__(self) -> None:
        if self.language not in (known := (*LANGUAGES, PLAIN)):
            raise ConfigError(
                f"retriever bm25s: there is no language {self.language!r}."
                f"{suggest(self.language, known)}"
            )

    @property
    def built_with(self) -> Mapping[str, Any]:
        """All settings: each of them changes a score in the files."""
        return asdict(self)

    def build(self, passages: PassageStore, folder: Path, previous: Index | None) -> None:
        """Count and score the terms of every passage: all scores change when some are added."""
        from bm25s import BM25

        analyzer = Analyzer(self.language)
        numbers: dict[str, int] = {}
        counted = []
        for passage in tracked(passages, "counting words", len(passages)):
            terms = analyzer.terms(passage.title) * self.title_weight + analyzer.terms(passage.text)
            counted.append(array("i", [numbers.setdefault(one, len(numbers)) for one in terms]))
        if numbers:  # else there is nothing to save
            bm25 = BM25(k1=self.k1, b=self.b, method="lucene", csc_backend="scipy")
            bm25.index((counted, numbers), create_empty_token=False, show_progress=False)
            bm25.save(folder, show_progress=False)

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Map the index."""
        return Bm25sRetriever(folder, passages, Analyzer(self.language))


class Bm25sRetriever(Stored):
    """BM25 over the passages of an index; safe to use from several threads."""

    def __init__(self, folder: Path, passages: PassageStore, analyzer: Analyzer) -> None:
        self.passages = passages
        self.analyzer = analyzer
        self._numbers: Mapping[str, int] = {}
        if (folder / "params.index.json").is_file():  # else no passage has a word
            from bm25s import BM25

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
        results = []
        for query in queries:
            scores = self.score(Counter(self.analyzer.terms(query)))
            best = find_best(scores, k)
            results.append([replace(self.passages[at], score=float(scores[at])) for at in best])
        return results

    def score(self, weights: Mapping[str, float]) -> NDArray[np.float32]:
        """The score [N] of every passage: the sum of the scores of terms, times their weights."""
        scores: NDArray[Any] = np.zeros(len(self.passages), dtype=np.float32)
        for term, weight in weights.items():
            if (number := self._numbers.get(term)) is not None:
                within = slice(self._starts[number], self._starts[number + 1])
                scores[self._indices[within]] += np.float32(weight) * self._data[within]
        return scores

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found."""
        places = {name: self.passages.find(name) for name in ids}
        results = []
        for query in queries:
            scores = self.score(Counter(self.analyzer.terms(query)))
            ranks: dict[str, int | None] = dict.fromkeys(ids)
            for name, at in places.items():
                if at is not None and scores[at] > 0:
                    better = np.count_nonzero(scores > scores[at])
                    ranks[name] = int(1 + better + np.count_nonzero(scores[:at] == scores[at]))
            results.append(ranks)
        return results


make_bm25s = IndexFactory(Bm25s)
"""The retriever `bm25s` over passages."""
