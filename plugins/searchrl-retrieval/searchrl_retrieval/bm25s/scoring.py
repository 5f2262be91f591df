"""From counts to scores: the second half of a build, in the file layout of the library bm25s.

Owns the formula and the sparse matrix on disk. Lucene's variant (Kamphuis et al. 2020, "Which BM25
do you mean?"), as bm25s has it:

    score(t, d) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5)) * tf / (tf + k1 * (1 - b + b * |d| / avg))

bm25s builds from lists in memory. Here the matrix is written to its place on disk part by part, so
a million passages need no more memory than twenty thousand; the files are those that
`bm25s.BM25.load(folder, mmap=True, load_vocab=False)` reads, and equal to its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from searchrl.retrieval import tracked
from searchrl_retrieval.bm25s.counting import read_part
from searchrl_retrieval.bm25s.terms import write_terms
from searchrl_retrieval.index.work import Work

_DATA, _INDICES, _INDPTR = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
_PARAMS = "params.index.json"


def write_scores(names: Sequence[str], count: int, k1: float, b: float, work: Work) -> None:
    """Score all parts of a corpus of `count` passages and write the index."""
    paths = [work.part(name) for name in names]
    numbers, document_counts, num_terms = _collect(paths)
    write_terms(work.folder, numbers)
    starts = np.zeros(len(document_counts) + 1, dtype=np.int64)
    np.cumsum(document_counts, out=starts[1:])
    np.save(work.folder / _INDPTR, starts)
    write_params(work.folder, count, k1, b)
    if not starts[-1]:
        return  # no word at all: nothing to map
    data = open_memmap(work.folder / _DATA, "w+", np.float32, (int(starts[-1]),))
    indices = open_memmap(work.folder / _INDICES, "w+", np.int32, (int(starts[-1]),))
    idf = np.log1p((count - document_counts + 0.5) / (document_counts + 0.5)).astype(np.float32)
    mean_length = num_terms / count
    heads = starts[:-1].copy()
    for path in tracked(paths, "computing scores", len(paths)):
        part = read_part(path)
        to_number = np.array([numbers[term] for term in part.terms], dtype=np.int64)
        number = to_number[part.term]
        length = part.lengths[part.place - part.first]
        weight = part.times / (part.times + k1 * (1 - b + b * length / mean_length))
        # Within a part, entries of a term stand together: place behind those of earlier parts.
        sizes = np.bincount(part.term, minlength=len(part.terms))
        run_starts = np.cumsum(sizes) - sizes
        position = heads[number] + np.arange(len(number)) - run_starts[part.term]
        data[position] = (idf[number] * weight).astype(np.float32)
        indices[position] = part.place
        heads[to_number] += sizes
    data.flush()
    indices.flush()


def write_params(folder: Path, count: int, k1: float, b: float) -> None:
    """What bm25s reads beside the matrix."""
    params = {
        "k1": k1,
        "b": b,
        "delta": 0.5,
        "method": "lucene",
        "idf_method": "lucene",
        "dtype": "float32",
        "int_dtype": "int32",
        "backend": "numpy",
        "num_docs": count,
        "version": metadata.version("bm25s"),
    }
    (folder / _PARAMS).write_text(json.dumps(params, indent=1), encoding="utf-8")


def _collect(paths: Sequence[Path]) -> tuple[dict[bytes, int], NDArray[np.int64], int]:
    """Every term with its number (they are in order), in how many passages it is, and the words."""
    found: dict[bytes, int] = {}
    num_terms = 0
    for path in paths:
        part = read_part(path)
        num_terms += int(part.lengths.sum(dtype=np.int64))
        sizes = np.bincount(part.term, minlength=len(part.terms)).tolist()
        for term, size in zip(part.terms, sizes, strict=True):
            found[term] = found.get(term, 0) + size
    ordered = sorted(found)
    counts = np.array([found[term] for term in ordered], dtype=np.int64)
    return {term: number for number, term in enumerate(ordered)}, counts, num_terms
