"""One collection, ready to be searched: its terms, its vectors, and the links of its passages.

Scores are those of the retriever `bm25s` with its defaults, for queries whose terms have weights;
embeddings are those of an encoder of searchrl-retrieval, computed once and kept in a file that is
named by the model's files and all texts. A passage links to those whose title it holds. `N` is the
number of passages, `V` of terms, `D` of dimensions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from bm25s import BM25
from numpy.typing import NDArray
from searchrl_retrieval.bm25s.kind import Bm25s
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.dense.encoders import Encoder, as_text
from searchrl_retrieval.dense.kinds import VectorKind

from searchrl import DataError, replace_file
from searchrl.contracts import Passage

Floats = NDArray[np.float32]

_BATCH = 512
"""Passages that are embedded at once."""


def load_vectors(passages: Sequence[Passage], encoder: Encoder, path: Path) -> Floats:
    """The vectors [N, D] of passages: those in a file, or they are computed and kept there."""
    try:
        kept: Floats = np.load(path, allow_pickle=False)
        return kept
    except (ValueError, OSError, EOFError):
        pass  # not there, or damaged
    blocks = [passages[at : at + _BATCH] for at in range(0, len(passages), _BATCH)]
    vectors = np.concatenate([encoder.encode_passages(block) for block in blocks])
    path.parent.mkdir(parents=True, exist_ok=True)
    content = BytesIO()
    np.save(content, vectors)
    replace_file(path, content.getvalue())
    return vectors


Query = Mapping[int, float]
"""Weights by the number of a term, in the order of the text, where there is one."""


class TermIndex:
    """Terms of a collection and their scores; `DataError` if no passage has a word."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        settings = Bm25s()
        self._analyzer = Analyzer(settings.language)
        self._numbers: dict[str, int] = {}
        titles = [self._count(passage.title) for passage in passages]
        texts = [self._count(passage.text) for passage in passages]
        self.names: tuple[str, ...] = tuple(self._numbers)
        if not self.names:
            raise DataError("the collection cannot be searched: no passage of it has a word")
        self.titles_NV = _as_counts(titles, len(self.names))
        self.counts_NV = (_as_counts(texts, len(self.names)) + self.titles_NV).tocsr()
        self.lengths_N = _sums(self.counts_NV, 1)
        self.found_in_V = found_in = _sums(self.counts_NV > 0, 0)
        """The number of passages with a term."""
        self.idf_V: Floats = np.log1p((len(passages) - found_in + 0.5) / (found_in + 0.5))
        of_all = _sums(self.counts_NV, 0)
        self.share_V: Floats = of_all / float(of_all.sum())
        """The share of a term in all words of the collection."""
        weight = settings.title_weight
        rows = [title * weight + text for title, text in zip(titles, texts, strict=True)]
        self._bm25 = BM25(k1=settings.k1, b=settings.b, method="lucene")
        vocabulary = (rows, dict(self._numbers))
        self._bm25.index(vocabulary, create_empty_token=False, show_progress=False)

    def query(self, text: str) -> Query:
        """The known terms of a text; the weight is how often each stands in it."""
        numbers = map(self._numbers.get, self._analyzer.terms(text))
        return Counter(number for number in numbers if number is not None)

    def query_of(self, weights: Mapping[str, float]) -> Query:
        """A query of index terms with weights; terms that the collection lacks are left out."""
        return {
            self._numbers[term]: float(weight)
            for term, weight in weights.items()
            if term in self._numbers and weight > 0
        }

    def weights_of(self, query: Query) -> dict[str, float]:
        """A query with its terms by name: what `query_of` reads."""
        return {self.names[number]: float(weight) for number, weight in query.items()}

    def score(self, query: Query) -> Floats:
        """The score [N] of every passage: the sum of its terms' scores times their weights."""
        scores = np.zeros(len(self.lengths_N), dtype=np.float32)
        for number, weight in query.items():
            scores += np.float32(weight) * self._bm25.get_scores_from_ids([number])
        return scores

    def terms_in(self, place: int, *, is_title: bool = False) -> NDArray[np.int32]:
        """The numbers of the terms of a passage and its title, or of the title, each once."""
        counts = self.titles_NV if is_title else self.counts_NV
        start, end = counts.indptr[place : place + 2]
        return np.asarray(counts.indices[start:end], dtype=np.int32)

    def _count(self, text: str) -> list[int]:
        terms = self._analyzer.terms(text)
        return [self._numbers.setdefault(term, len(self._numbers)) for term in terms]


def _as_counts(rows: Sequence[Sequence[int]], num_terms: int) -> Any:
    """Counts [N, V] of each term in each row."""
    ends = np.cumsum([0, *(len(row) for row in rows)])
    terms = np.fromiter((number for row in rows for number in row), np.int32, int(ends[-1]))
    ones = np.ones(len(terms), dtype=np.float32)
    counts = sp.csr_matrix((ones, terms, ends), shape=(len(rows), num_terms))
    counts.sum_duplicates()
    return counts


def _sums(matrix: Any, axis: int) -> Floats:
    return np.asarray(matrix.sum(axis=axis), dtype=np.float32).ravel()


COVERED = 0.3
"""The weight of a query's term once a passage has it. At 0 every collection loses."""

_KEPT_BYTES = 200_000_000
"""Memory for links."""


class Library:
    """The passages of a collection with their terms, vectors and links.

    `kind` has the encoder, `cache` is the folder of the vectors.
    """

    def __init__(self, passages: Sequence[Passage], kind: VectorKind, cache: Path) -> None:
        self.passages = tuple(passages)
        self.place_of = {passage.id: place for place, passage in enumerate(self.passages)}
        self.terms = terms = TermIndex(self.passages)
        self.encoder = kind.load_encoder()
        # Two folders of one model have the same vectors.
        built_with = {name: value for name, value in kind.built_with.items() if name != "model"}
        digest = hashlib.sha256(repr(built_with).encode())
        for passage in self.passages:
            text = as_text(passage).encode()
            digest.update(b"%d:" % len(text) + text)
        path = cache / f"vectors-{digest.hexdigest()[:32]}.npy"
        self.vectors_ND = load_vectors(self.passages, self.encoder, path)
        weighted = (terms.titles_NV > 0).astype(np.float32).multiply(terms.idf_V[None, :]).tocsr()
        sums = np.asarray(weighted.sum(axis=1)).ravel()
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
        self._titles_by_term = sp.diags(scale).dot(weighted).tocsc().astype(np.float32)
        self.links = lru_cache(max(16, _KEPT_BYTES // (4 * len(self.passages))))(self._links)

    def _links(self, place: int) -> Floats:
        """The share [N] of every title's IDF that stands in a passage; 0 for the passage itself."""
        terms = self.terms.terms_in(place)
        shares = np.asarray(self._titles_by_term[:, terms].sum(axis=1), dtype=np.float32).ravel()
        shares[place] = 0
        shares.setflags(write=False)  # it is kept, and shared
        return shares

    def residual(self, query: Query, place: int) -> Query:
        """A query once a passage was read: its terms there have a lower weight."""
        have = set(self.terms.terms_in(place).tolist())
        return {
            number: value * (COVERED if number in have else 1.0) for number, value in query.items()
        }
