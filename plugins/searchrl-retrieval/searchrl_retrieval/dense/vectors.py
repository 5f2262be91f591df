"""Vectors on disk: in a FAISS file, exact, as a graph, or compressed; mapped, not read.

`flat` compares with every vector, `hnsw` walks a graph (Malkov and
Yashunin 2018) and finds almost the same in a fraction of the time, `pq` keeps a few bytes per
vector (product quantisation, Jégou et al. 2011) in lists of which a search reads some.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from searchrl import ConfigError
from searchrl_retrieval.dense.encoders import Vectors

FILE = "vectors.faiss"

_LINKS, _EF_BUILD = 32, 200
"""Links per vector of the graph, and candidates for each new one."""

MIN_TO_TRAIN = 9_984
"""Vectors from which `pq` learns its 256 codes: fewer than 39 per code give poor ones."""

_TRAINED_WITH = 256
"""Vectors per list that are looked at to place the lists."""

_BLOCK = 10_000
"""Vectors that are added at once."""


class Found(NamedTuple):
    """The result of a search: `scores` and `places`, both [B, k], best first. Place -1: nothing."""

    scores: Any
    places: Any


class FaissVectors:
    """The vectors of a file that `write_faiss` made. Safe to use from several threads.

    A search keeps `ef_search` candidates in `hnsw`, and reads `num_probes` lists in `pq`.
    """

    def __init__(self, path: Path, ef_search: int, num_probes: int) -> None:
        import faiss

        self._faiss = faiss
        flags = faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY
        self._index: Any = faiss.read_index(str(path), flags)
        self._ef_search, self._num_probes = ef_search, num_probes

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Vectors, k: int) -> Found:
        """The best `k` (at least 1) for every row of `queries` [B, D]."""
        k = min(k, len(self))
        parameters = None
        if isinstance(self._index, self._faiss.IndexHNSW):
            wide = max(self._ef_search, k)
            parameters = self._faiss.SearchParametersHNSW(efSearch=wide)
        elif isinstance(self._index, self._faiss.IndexIVF):
            probes = min(self._num_probes, self._index.nlist)
            parameters = self._faiss.SearchParametersIVF(nprobe=probes)
        return Found(*self._index.search(queries, k, params=parameters))


def write_faiss(
    path: Path, vectors: Vectors, layout: str, num_bytes: int, previous: Path | None
) -> None:
    """Write vectors [N, D], which may be mapped, into a file; `num_bytes` per vector under `pq`.

    `previous`: a file of the same layout whose vectors come first; it is not changed.
    """
    import faiss

    if previous is not None:
        index: Any = faiss.read_index(str(previous))
    else:
        index = _make_index(vectors, layout, num_bytes)
    for start in range(0, len(vectors), _BLOCK):
        index.add(np.ascontiguousarray(vectors[start : start + _BLOCK]))
    faiss.write_index(index, str(path))


def _make_index(vectors: Vectors, layout: str, num_bytes: int) -> Any:
    """An empty index, trained if its layout learns from the vectors."""
    import faiss

    count, dim = vectors.shape
    if layout == "flat":
        return faiss.IndexFlatIP(dim)
    if layout == "hnsw":
        index = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _EF_BUILD
        return index
    if count < MIN_TO_TRAIN:
        raise ConfigError(
            f"store=pq learns from at least {MIN_TO_TRAIN:,} passages, and the corpus has "
            f"{count:,}. Use store=flat: it needs {count * dim * 4 / 2**20:.0f} MiB here"
        )
    if dim % num_bytes:
        near = min((n for n in range(1, dim + 1) if dim % n == 0), key=lambda n: abs(n - num_bytes))
        raise ConfigError(
            f"store=pq cannot keep {dim} numbers in pq_bytes={num_bytes}: expected a divisor of "
            f"{dim}, such as {near}"
        )
    num_lists = max(1, min(math.isqrt(count) * 4, count // 39))
    # "np": no sorting of codes by Hamming distance. It takes seconds per byte, and no search here
    # looks at that distance.
    kind = f"IVF{num_lists},PQ{num_bytes}x8np"
    index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    # At equal distances, so that a build can be repeated.
    step = math.ceil(count / max(num_lists * _TRAINED_WITH, 256 * _TRAINED_WITH))
    index.train(np.ascontiguousarray(vectors[::step]))
    return index
