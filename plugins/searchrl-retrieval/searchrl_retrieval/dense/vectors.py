"""Vectors in a FAISS file: exact, as a graph, or compressed; mapped, not read.

Owns the three layouts and their file. `flat` compares with every vector, `hnsw` walks a graph
(Malkov and Yashunin 2018) and finds almost the same in a fraction of the time, `pq` keeps a few
bytes per vector (product quantisation, Jégou et al. 2011) in lists of which a search reads some.
Called by `kinds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from searchrl import ConfigError
from searchrl_retrieval.dense.encoders import Vectors

Layout = Literal["flat", "hnsw", "pq"]

FILE = "vectors.faiss"

_LINKS, _EF_BUILD = 32, 200
"""Of the graph: links per vector, and candidates looked at for each new one."""

_SLACK = 1e-4
"""Share of a score by which two sums of its parts may differ, with room to spare."""

MIN_TO_TRAIN = 9_984
"""Vectors from which `pq` learns its 256 codes: fewer than 39 per code give poor ones."""

_TRAINED_WITH = 256
"""Vectors per list that are looked at to place the lists."""


class Found(NamedTuple):
    """What a search found: `scores` and `places`, both [B, k], best first. Place -1: nothing."""

    scores: Any
    places: Any


class FaissVectors:
    """The vectors of a file that `write_vectors` made.

    Args:
        path: the file.
        ef_search: of `hnsw`: how many candidates a search keeps.
        num_probes: of `pq`: how many lists a search reads.
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
        """Search for `queries` [B, D]; `k` is at least 1. Safe to use from several threads."""
        k = min(k, len(self))
        parameters = None
        if isinstance(self._index, self._faiss.IndexHNSW):
            wide = max(self._ef_search, k)
            parameters = self._faiss.SearchParametersHNSW(efSearch=wide)
        elif isinstance(self._index, self._faiss.IndexIVF):
            probes = min(self._num_probes, self._index.nlist)
            parameters = self._faiss.SearchParametersIVF(nprobe=probes)
        return Found(*self._index.search(queries, k, params=parameters))

    def as_good_as(self, query: Vectors, places: Sequence[int]) -> Found:
        """Scores and places of all vectors that are as near to `query` [D] as one of `places`.

        In no order, and some that are a little less near. Of `flat` alone.
        """
        own = self._index.reconstruct_batch(list(places)) @ query
        least = float(own.min())
        # FAISS adds up in another order, so the last digits differ.
        _, scores, found = self._index.range_search(query[None], least - _SLACK * (1 + abs(least)))
        return Found(scores, found)


def write_vectors(
    path: Path,
    blocks: Sequence[Vectors],
    dim: int,
    layout: Layout,
    num_bytes: int,
    previous: Path | None = None,
) -> None:
    """Write vectors into a file.

    Args:
        path: the file to write.
        blocks: arrays [N_i, dim], one after another.
        dim: numbers per vector.
        layout: see above.
        num_bytes: bytes per vector under `pq`.
        previous: a file of the same layout whose vectors come first; it is not changed.

    Raises:
        ConfigError: `pq` with too few vectors, or with bytes that do not divide `dim`.
    """
    import faiss

    if previous is not None:
        index: Any = faiss.read_index(str(previous))
    else:
        index = _make_index(blocks, dim, layout, num_bytes)
    for block in blocks:
        index.add(_as_array(block))
    faiss.write_index(index, str(path))


def _make_index(blocks: Sequence[Vectors], dim: int, layout: Layout, num_bytes: int) -> Any:
    """An empty index, trained if its layout learns from the vectors."""
    import faiss

    if layout == "flat":
        return faiss.IndexFlatIP(dim)
    if layout == "hnsw":
        index = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _EF_BUILD
        return index
    count = sum(len(block) for block in blocks)
    if count < MIN_TO_TRAIN:
        raise ConfigError(
            f"faiss=pq learns from at least {MIN_TO_TRAIN:,} passages, and the corpus has "
            f"{count:,}. Use faiss=flat: it needs {count * dim * 4 / 2**20:.0f} MiB here"
        )
    if dim % num_bytes:
        fits = [n for n in range(1, dim + 1) if dim % n == 0]
        near = min(fits, key=lambda n: abs(n - num_bytes))
        raise ConfigError(
            f"faiss=pq cannot keep {dim} numbers in pq_bytes={num_bytes}: expected a divisor of "
            f"{dim}, such as {near}"
        )
    num_lists = max(1, min(math.isqrt(count) * 4, count // 39))
    # "np": no sorting of codes by Hamming distance. It takes seconds per byte, and no search here
    # looks at that distance.
    kind = f"IVF{num_lists},PQ{num_bytes}x8np"
    index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(_sample(blocks, count, max(num_lists * _TRAINED_WITH, 256 * _TRAINED_WITH)))
    return index


def _sample(blocks: Iterable[Vectors], count: int, wanted: int) -> Vectors:
    """At most `wanted` vectors at equal distances, so that a build can be repeated."""
    import numpy as np

    step = max(1, math.ceil(count / wanted))
    return np.concatenate([_as_array(block[::step]) for block in blocks])


def _as_array(block: Vectors) -> Vectors:
    """A mapped block in memory, as FAISS wants it."""
    import numpy as np

    return np.ascontiguousarray(block, dtype=np.float32)
