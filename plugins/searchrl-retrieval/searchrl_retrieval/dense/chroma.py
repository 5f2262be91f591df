"""Vectors in a Chroma collection within an index folder, which other programs can read, too.

Chroma changes its own files when it opens them, so the manifest has no checksums of them. Telemetry
is off, and Chroma's own models are never asked for.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from searchrl.retrieval import tracked
from searchrl_retrieval.dense.encoders import Vectors, as_plain
from searchrl_retrieval.dense.vectors import Found
from searchrl_retrieval.extras import need
from searchrl_retrieval.index.manifest import CHANGING
from searchrl_retrieval.index.passages import PassageStore

_NAME = "passages"

_BATCH = 256
"""Passages that are added at once."""


class ChromaVectors:
    """The collection that `write_chroma` made."""

    def __init__(self, folder: Path) -> None:
        self._collection = _open(folder).get_collection(_NAME, embedding_function=None)
        self._count = int(self._collection.count())

    def __len__(self) -> int:
        return self._count

    def search(self, queries: Vectors, k: int) -> Found:
        """The best `k` (at least 1) for every row of `queries` [B, D]."""
        best = self._collection.query(
            query_embeddings=queries, n_results=min(k, self._count), include=["distances"]
        )
        scores = np.full((len(queries), k), -np.inf)
        places = np.full((len(queries), k), -1)
        for row, (ids, distances) in enumerate(zip(best["ids"], best["distances"], strict=True)):
            places[row, : len(ids)] = [int(name) for name in ids]
            # Chroma's distance is 1 less the inner product.
            scores[row, : len(ids)] = 1 - np.asarray(distances)
        return Found(scores, places)


def write_chroma(
    folder: Path,
    vectors: Vectors,
    passages: PassageStore,
    ef_search: int,
    previous: Path | None,
) -> None:
    """Write the vectors of the last passages into the collection of a folder.

    Places are ids there, since those of passages may be any text. `ef_search` is how many
    candidates a search keeps. `previous`: a folder whose collection has the first passages.
    """
    shutil.rmtree(folder / CHANGING, ignore_errors=True)  # of a build that was killed
    if previous is not None:
        shutil.copytree(previous / CHANGING, folder / CHANGING)
    client = _open(folder)
    collection = client.get_or_create_collection(
        _NAME,
        embedding_function=None,
        configuration={"hnsw": {"space": "ip", "ef_search": ef_search}},
    )
    first = len(passages) - len(vectors)
    starts = range(0, len(vectors), _BATCH)
    for start in tracked(starts, "filling the collection", len(starts)):
        rows = vectors[start : start + _BATCH]
        block = [passages[first + start + row] for row in range(len(rows))]
        collection.add(
            ids=[str(first + start + row) for row in range(len(rows))],
            embeddings=np.asarray(rows),
            documents=[as_plain(passage.text) for passage in block],
            metadatas=[{"id": as_plain(one.id), "title": as_plain(one.title)} for one in block],
        )
    client.close()


def _open(folder: Path) -> Any:
    need("retriever dense with store=chroma", "chroma", "chromadb")
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(str(folder / CHANGING), settings=settings)
