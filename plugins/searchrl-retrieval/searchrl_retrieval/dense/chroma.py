"""Vectors in a Chroma collection, which other programs can read, too.

Owns the collection of a corpus in a Chroma folder: its name, what it holds, and that a filling that
was stopped goes on. Chroma keeps the folder itself, and writes to it when it is opened, so it is no
index folder with checksums. Telemetry is off and Chroma's own models are never asked for.
Called by `kinds`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl import ConfigError
from searchrl.contracts import Passage
from searchrl.retrieval import tracked
from searchrl_retrieval.dense.building import encode_block
from searchrl_retrieval.dense.encoders import Encoder, Vectors, as_plain
from searchrl_retrieval.dense.vectors import Found
from searchrl_retrieval.extras import need
from searchrl_retrieval.index.passages import fingerprint_passages

_BATCH = 256
"""Passages that are added at once."""


class ChromaVectors:
    """A filled collection; `ef_search` is how many candidates a search keeps."""

    def __init__(self, collection: Any, count: int) -> None:
        self._collection = collection
        self._count = count

    def __len__(self) -> int:
        return self._count

    def search(self, queries: Vectors, k: int) -> Found:
        """See `VectorStore`."""
        import numpy as np

        found = self._collection.query(
            query_embeddings=queries, n_results=min(k, self._count), include=["distances"]
        )
        scores = np.full((len(queries), k), -np.inf)
        places = np.full((len(queries), k), -1)
        for row, (ids, distances) in enumerate(zip(found["ids"], found["distances"], strict=True)):
            places[row, : len(ids)] = [int(name) for name in ids]
            # Chroma's distance is 1 less the inner product.
            scores[row, : len(ids)] = 1 - np.asarray(distances)
        return Found(scores, places)


def open_chroma(
    folder: str | Path,
    passages: Sequence[Passage],
    encoder: Encoder,
    title_weight: float,
    ef_search: int,
    made_with: Mapping[str, Any],
) -> ChromaVectors:
    """Open the collection of a corpus, and add the passages that it lacks.

    Args:
        folder: a Chroma folder; it is made if it is not there. It may hold other collections.
        passages: the corpus.
        encoder, title_weight: make the vectors.
        ef_search: candidates that a search keeps; decided when the collection is made.
        made_with: what decides the vectors. With the corpus it makes the name of the collection,
            so that one of another corpus or model is never taken for this one.

    Raises:
        ConfigError: Chroma is not installed, or cannot use the folder.
    """
    need("retriever dense with the setting chroma", "chroma", "chromadb")
    import chromadb
    from chromadb.config import Settings

    facts = {**made_with, "ef_search": ef_search, "corpus": fingerprint_passages(passages)}
    mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path = str(Path(folder).expanduser())
    try:
        client = chromadb.PersistentClient(path, settings=Settings(anonymized_telemetry=False))
        collection: Any = client.get_or_create_collection(
            f"searchrl-{mark[:24]}",
            embedding_function=None,
            metadata={key: value for key, value in facts.items() if value is not None},
            configuration={"hnsw": {"space": "ip", "ef_search": ef_search}},
        )
    except Exception as error:  # of SQLite, the file system and Chroma itself
        raise ConfigError(
            f"retriever dense: '{folder}' cannot be used as a Chroma folder: "
            f"{type(error).__name__}: {error}. Name a new one with retriever.chroma"
        ) from error
    _fill(collection, passages, encoder, title_weight)
    return ChromaVectors(collection, len(passages))


def _fill(
    collection: Any, passages: Sequence[Passage], encoder: Encoder, title_weight: float
) -> None:
    """Add what is missing. Places are ids there: those of passages may be any text."""
    done = collection.count()
    if done >= len(passages):
        return
    # The last batch may have been added in part; adding it again changes nothing.
    first = max(0, done - _BATCH)
    starts = range(first, len(passages), _BATCH)
    for start in tracked(starts, "filling the collection", len(starts)):
        block = [passages[at] for at in range(start, min(start + _BATCH, len(passages)))]
        collection.upsert(
            ids=[str(start + offset) for offset in range(len(block))],
            embeddings=encode_block(block, encoder, title_weight),
            documents=[as_plain(passage.text) for passage in block],
            metadatas=[
                {"id": as_plain(passage.id), "title": as_plain(passage.title)} for passage in block
            ],
        )
