"""One collection, ready to be searched: its terms, its vectors, and the links of its passages.

Owns the vocabulary, the counts that feedback, links and features are made of, and the file of
vectors, whose name is made of the model's files and of all texts. Scores are those of the retriever
`bm25s` with its defaults, for queries whose terms have weights; embeddings are those of an encoder
of searchrl-retrieval, frozen, computed once and kept on disk. A passage links to those whose title
it holds. `N` is the number of passages, `V` of terms, `D` of dimensions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from bm25s import BM25
from numpy.typing import NDArray
from searchrl_retrieval.bm25s.kind import Bm25s
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.dense.encoders import Encoder, as_text
from searchrl_retrieval.dense.kinds import Dense, Static

from searchrl import DataError
from searchrl.contracts import Passage
from searchrl_control.searchers.ranking import Scores

Vectors = NDArray[np.float32]

KINDS = {"static": Static, "dense": Dense}
"""A table of vectors (quick), or a sentence-transformers model."""

_BATCH = 512


class NamedEncoder(NamedTuple):
    """An encoder, and the text that two equal ones share."""

    encoder: Encoder
    fingerprint: str


def load_encoder(kind: str = "static", model: str | None = None) -> NamedEncoder:
    """Load an encoder of this machine. Raises `ConfigError`: there is no such model here."""
    made = KINDS[kind](model=model) if model else KINDS[kind]()
    built_with = {name: said for name, said in made.built_with.items() if name != "model"}
    return NamedEncoder(made.load_encoder(), repr(built_with))


class VectorIndex:
    """The vectors of a collection."""

    def __init__(
        self, passages: Sequence[Passage], named: NamedEncoder, folder: Path | None = None
    ) -> None:
        self.encoder, self.dim = named.encoder, named.encoder.dim
        digest = hashlib.sha256(named.fingerprint.encode())
        for passage in passages:
            text = as_text(passage).encode()
            digest.update(b"%d:" % len(text) + text)
        path = folder / f"vectors-{digest.hexdigest()[:32]}.npy" if folder else None
        self.vectors_ND = self._load(passages, path)

    def _load(self, passages: Sequence[Passage], path: Path | None) -> Vectors:
        vectors = np.zeros((len(passages), self.dim), dtype=np.float32)
        try:
            if path is not None:
                kept: Vectors = np.load(path, allow_pickle=False)
                if kept.shape == vectors.shape:
                    return kept
        except (ValueError, OSError, EOFError):
            pass  # not there, or damaged: computed and kept
        for start in range(0, len(passages), _BATCH):
            batch = passages[start : start + _BATCH]
            vectors[start : start + len(batch)] = self.encoder.encode_passages(batch)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Another process may do the same: whoever is last puts the same file there.
            half = path.with_name(f"{path.stem}.{os.getpid()}.half.npy")
            np.save(half, vectors)
            half.replace(path)
        return vectors


Query = Mapping[int, float]
"""The number of a term -> its weight. In the order of the text, where there is one."""


class TermIndex:
    """Terms of a collection and their scores.

    Raises `DataError`: there is no passage, or no passage has a word.
    """

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
        self.num_passages = len(passages)
        self.lengths_N: Scores = _sums(self.counts_NV, 1)
        self.found_in_V: Scores = _sums(self.counts_NV > 0, 0)
        """In how many passages a term stands."""
        found_in = self.found_in_V
        self.idf_V: Scores = np.log1p((len(passages) - found_in + 0.5) / (found_in + 0.5))
        of_all = _sums(self.counts_NV, 0)
        self.share_V: Scores = of_all / max(float(of_all.sum()), 1.0)
        """How large a share of all words of the collection a term is."""
        weight = settings.title_weight
        rows = [title * weight + text for title, text in zip(titles, texts, strict=True)]
        self._bm25 = BM25(k1=settings.k1, b=settings.b, method="lucene")
        vocabulary = (rows, dict(self._numbers))
        self._bm25.index(vocabulary, create_empty_token=False, show_progress=False)

    def query(self, text: str) -> dict[int, float]:
        """The known terms of a text; the weight is how often each stands in it."""
        found: dict[int, float] = {}
        for term in self._analyzer.terms(text):
            if (number := self._numbers.get(term)) is not None:
                found[number] = found.get(number, 0.0) + 1.0
        return found

    def query_of(self, weights: Mapping[str, float]) -> dict[int, float]:
        """A query of index terms with weights; terms that the collection lacks are left out."""
        return {
            self._numbers[term]: float(weight)
            for term, weight in weights.items()
            if term in self._numbers and weight > 0
        }

    def weights_of(self, query: Query) -> dict[str, float]:
        """A query with its terms by name: what `query_of` reads."""
        return {self.names[number]: float(weight) for number, weight in query.items()}

    def score(self, query: Query) -> Scores:
        """The score [N] of every passage: the sum of its terms' scores times their weights."""
        scores = np.zeros(self.num_passages, dtype=np.float32)
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
    """How often each term stands in each row: [N, V]."""
    ends = np.cumsum([0, *(len(row) for row in rows)])
    terms = np.fromiter((number for row in rows for number in row), np.int32, int(ends[-1]))
    ones = np.ones(len(terms), dtype=np.float32)
    counts = sp.csr_matrix((ones, terms, ends), shape=(len(rows), num_terms))
    counts.sum_duplicates()
    return counts


def _sums(matrix: Any, axis: int) -> Scores:
    return np.asarray(matrix.sum(axis=axis), dtype=np.float32).ravel()


COVERED = 0.3
"""The weight of a query's term once a passage has it. At 0 every collection loses: measured."""

_KEPT = 4_000
"""Passages whose links are kept in memory, if they are no more than `_KEPT_BYTES`."""
_KEPT_BYTES = 200_000_000


class Library:
    """The passages of a collection with their terms, vectors and links.

    Raises `DataError`: no passage has a word.
    """

    def __init__(
        self, passages: Sequence[Passage], encoder: NamedEncoder, cache: Path | None = None
    ) -> None:
        self.passages = tuple(passages)
        self.place_of = {passage.id: place for place, passage in enumerate(self.passages)}
        self.terms = terms = TermIndex(self.passages)
        self.vectors = VectorIndex(self.passages, encoder, cache)
        weighted = (terms.titles_NV > 0).astype(np.float32).multiply(terms.idf_V[None, :]).tocsr()
        sums = np.asarray(weighted.sum(axis=1)).ravel()
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
        self._titles_by_term = sp.diags(scale).dot(weighted).tocsc().astype(np.float32)
        kept = max(16, min(_KEPT, _KEPT_BYTES // (4 * len(self.passages))))
        self.links = lru_cache(maxsize=kept)(self._links)

    def _links(self, place: int) -> Scores:
        """The share [N] of every title's IDF that stands in a passage; 0 for the passage itself."""
        terms = self.terms.terms_in(place)
        shares = np.asarray(self._titles_by_term[:, terms].sum(axis=1), dtype=np.float32).ravel()
        shares[place] = 0
        shares.setflags(write=False)  # it is kept, and shared
        return shares

    def residual(self, query: Query, place: int) -> dict[int, float]:
        """What is left of a query once a passage was read: its terms there have a lower weight."""
        have = set(self.terms.terms_in(place).tolist())
        return {
            number: value * (COVERED if number in have else 1.0) for number, value in query.items()
        }
