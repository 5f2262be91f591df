"""Corpora of any size for the benchmarks: real passages first, then generated ones.

Owns the generator. A generated passage has a title of two words and a text of 100, drawn from a
vocabulary of 200,000 words with the frequencies of Zipf and Mandelbrot. The words of the real
passages come first in it, in the order of their frequency, so that a real question meets
posting lists as long as those of a real corpus. Everything depends on the seed alone. Knows no
retriever.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from searchrl.contracts import Passage
from searchrl.data import Problems, load_corpus, parse_rows
from searchrl.retrieval import tokenize

NUM_WORDS = 200_000
"""Size of the vocabulary."""
TEXT_WORDS, TITLE_WORDS = 100, 2
SHIFT = 2.7
"""Mandelbrot's shift: the word of rank r has a frequency in proportion to 1 / (r + SHIFT)."""

_MOST_SYLLABLES = 4
_BLOCK = 10_000
"""Passages, or words, drawn together. Part of what a seed means: another one, other passages."""
_ONSETS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr pl sk st tr th sh".split()
_VOWELS = "a e i o u ai ea ou".split()
_ENDS = ("", "n", "r", "s", "l", "t", "nd", "ck")


def read_real(data: Path) -> list[Passage]:
    """The passages of every collection below a folder; ids begin with its folder's name.

    A collection is a folder with a `corpus.jsonl(.gz)` and questions beside it.
    """
    problems = Problems()
    found = [
        Passage(id=f"{path.parent.name}-{passage.id}", title=passage.title, text=passage.text)
        for path in _find_collections(data)
        for passage in load_corpus(path, problems)
    ]
    problems.ensure_none()
    return found


def read_real_queries(data: Path) -> list[str]:
    """The questions of every collection below a folder."""
    problems = Problems()
    found = [
        text
        for corpus in _find_collections(data)
        for path in _find_questions(corpus.parent)
        for text in parse_rows(
            path, problems, lambda row: str(row.value.get("question") or row.value["text"]), "query"
        )
    ]
    problems.ensure_none()
    return found


def _find_collections(data: Path) -> list[Path]:
    return [path for path in sorted(data.rglob("corpus.jsonl*")) if _find_questions(path.parent)]


def _find_questions(folder: Path) -> list[Path]:
    names = ("questions.jsonl", "queries.jsonl")
    return [path for name in names for path in sorted(folder.glob(f"{name}*"))]


def make_passages(real: Sequence[Passage], count: int, *, seed: int = 0) -> Iterator[Passage]:
    """Yield `count` passages: the real ones, as far as they go, then generated ones.

    A longer corpus begins with the shorter ones of the same seed. One block is held in memory.
    """
    yield from real[:count]
    yield from itertools.islice(_generate(real, seed), max(0, count - len(real)))


def make_vocabulary(real: Iterable[Passage], *, seed: int = 0) -> list[str]:
    """`NUM_WORDS` different words: those of the passages, most frequent first, then made up."""
    counts: Counter[str] = Counter()
    for passage in real:
        counts.update(tokenize(passage.title))
        counts.update(tokenize(passage.text))
    words = dict.fromkeys(word for word, _ in sorted(counts.items(), key=lambda pair: -pair[1]))
    rng = np.random.default_rng((seed, 1))
    while len(words) < NUM_WORDS:
        words |= dict.fromkeys(_make_words(rng))
    return list(words)[:NUM_WORDS]


def _make_words(rng: np.random.Generator) -> list[str]:
    """Some thousand words of two to four syllables."""
    shape = (_BLOCK, _MOST_SYLLABLES)
    syllables = np.array([onset + vowel for onset in _ONSETS for vowel in _VOWELS], dtype=object)
    drawn = syllables[rng.integers(len(syllables), size=shape)]
    lengths = rng.integers(2, _MOST_SYLLABLES + 1, _BLOCK)
    ends = np.array(_ENDS, dtype=object)[rng.integers(len(_ENDS), size=_BLOCK)]
    return ["".join(row[:n]) + end for row, n, end in zip(drawn, lengths, ends, strict=True)]


def _generate(real: Sequence[Passage], seed: int) -> Iterator[Passage]:
    words = np.array(make_vocabulary(real, seed=seed), dtype=object)
    weights = 1.0 / (np.arange(1, NUM_WORDS + 1) + SHIFT)
    limits = np.cumsum(weights / weights.sum())
    limits[-1] = 1.0
    for block in itertools.count():
        rng = np.random.default_rng((seed, 2, block))
        drawn = np.searchsorted(limits, rng.random((_BLOCK, TEXT_WORDS)), side="right")
        # Titles are names: words that are not among the most frequent ones.
        titles = rng.integers(NUM_WORDS // 100, NUM_WORDS, (_BLOCK, TITLE_WORDS))
        for place in range(_BLOCK):
            yield Passage(
                id=f"generated-{block * _BLOCK + place}",
                title=" ".join(words[titles[place]]).title(),
                text=" ".join(words[drawn[place]]),
            )
