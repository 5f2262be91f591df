"""How often every term occurs in every passage: the first half of a build, in parts.

Owns the part files: the counts of some thousand passages, with their own vocabulary. A part does
not depend on other parts, so a build that was killed goes on behind the last one. Memory is that
of one part.
"""

from __future__ import annotations

import itertools
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from searchrl.contracts import Passage
from searchrl.retrieval import tokenize, tracked
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.index.work import Work

PASSAGES_IN_A_PART = 20_000

_KEPT = "\0"
"""Behind a stop word that counts; no word of a text has it."""

_ARRAYS = ("term", "place", "times", "lengths")


class Part(NamedTuple):
    """The counts of consecutive passages; one entry per term and passage, by term, then passage.

    `terms` are those of the part in order. `term` has places in it, `place` those of passages in
    the corpus, `times` is never 0. `lengths` has the number of terms of every passage, of which
    the first stands at `first` in the corpus.
    """

    first: int
    terms: list[bytes]
    term: NDArray[np.int32]
    place: NDArray[np.int32]
    times: NDArray[np.int32]
    lengths: NDArray[np.int32]


def count_parts(
    passages: Sequence[Passage], analyzer: Analyzer, title_weight: int, work: Work
) -> list[str]:
    """Count the terms of all passages; returns the names of the parts in order."""
    names = []
    places = tracked(range(len(passages)), "counting words", len(passages))
    for first in range(0, len(passages), PASSAGES_IN_A_PART):
        block = itertools.islice(places, min(PASSAGES_IN_A_PART, len(passages) - first))
        name = f"counts-{first:010d}.npz"
        if work.has(name):
            deque(block, maxlen=0)
        else:
            texts = (passages[place] for place in block)
            with work.writing(name) as path:
                _write(path, _count(texts, first, analyzer, title_weight))
        names.append(name)
    deque(places, maxlen=0)  # says that it is done
    return names


def read_part(path: Path) -> Part:
    """Read a part that `count_parts` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        blob, ends = arrays["blob"].tobytes(), arrays["ends"].tolist()
        terms = [blob[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        first = int(arrays["first"])
        return Part(first, terms, *(arrays[name] for name in _ARRAYS))


def _count(passages: Iterator[Passage], first: int, analyzer: Analyzer, title_weight: int) -> Part:
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    tokens, sizes = array("i"), array("i")
    for passage in passages:
        title, text = (_words_of(one, analyzer.stops) for one in (passage.title, passage.text))
        tokens.extend(list(map(numbers.__getitem__, title)) * title_weight)
        tokens.extend(map(numbers.__getitem__, text))
        sizes.append(len(title) * title_weight + len(text))
    # Every word of these passages is stemmed once.
    terms, term_of = _find_terms(list(numbers), analyzer)
    term = term_of[np.frombuffer(tokens, dtype=np.int32)] if tokens else np.zeros(0, np.int64)
    num_words = np.frombuffer(sizes, dtype=np.int32) if sizes else np.zeros(0, np.int32)
    place = np.repeat(np.arange(len(sizes)), num_words)[term >= 0]
    term = term[term >= 0]
    # One number for a term and a passage, so that equal ones stand together once sorted.
    found, times = np.unique(term * max(len(sizes), 1) + place, return_counts=True)
    lengths = np.bincount(place, minlength=len(sizes))
    term, place = np.divmod(found, max(len(sizes), 1))
    columns = (term, place + first, times, lengths)
    return Part(first, terms, *(column.astype(np.int32) for column in columns))


def _words_of(text: str, stops: frozenset[str]) -> list[str]:
    """The words of a text; those of one that has only stop words are marked to be kept."""
    words = tokenize(text)
    return [word + _KEPT for word in words] if stops.issuperset(words) else words


def _find_terms(words: list[str], analyzer: Analyzer) -> tuple[list[bytes], NDArray[np.int64]]:
    """The terms of words, in order, and the place of every word's term; -1 for stop words."""
    stems = analyzer.stem([word.removesuffix(_KEPT) for word in words])
    encoded = [
        b"" if word in analyzer.stops else stem.encode("utf-8", "surrogatepass")
        for word, stem in zip(words, stems, strict=True)
    ]
    terms = sorted({term for term in encoded if term})
    places = {term: place for place, term in enumerate(terms)} | {b"": -1}
    return terms, np.array([places[term] for term in encoded], dtype=np.int64)


def _write(path: Path, part: Part) -> None:
    arrays = {name: getattr(part, name) for name in _ARRAYS}
    with open(path, "wb") as file:
        np.savez(
            file,
            first=np.int64(part.first),
            blob=np.frombuffer(b"".join(part.terms), dtype=np.uint8),
            ends=np.cumsum([len(term) for term in part.terms], dtype=np.int64),
            **arrays,
        )
