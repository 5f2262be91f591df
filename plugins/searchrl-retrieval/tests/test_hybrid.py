"""`hybrid`: which parts are asked for how much, and what becomes of their rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from searchrl_retrieval.hybrid import make_hybrid

from searchrl import ConfigError, RetrieverFailure, load_plugins, make_retriever_factory
from searchrl.contracts import Passage, Retriever, StoredRetriever

CORPUS = tuple(Passage(name, f"text {name}", f"title {name}") for name in "abcdef")


class Fixed:
    """Finds the same for every query, and remembers what it was asked."""

    def __init__(self, **scores: float) -> None:
        self.scores = scores
        self.asked: list[tuple[list[str], int]] = []

    def __call__(self, passages: Sequence[Passage]) -> Fixed:
        self.known = {passage.id: passage for passage in passages}
        return self

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked.append((list(queries), k))
        found = [replace(self.known[name], score=s) for name, s in self.scores.items()]
        return [found[:k] for _ in queries]


class Kept(Fixed):
    """One that has passages of its own."""

    def stored(self, ids: Sequence[str]) -> list[Passage | None]:
        return [self.known.get(name) for name in ids]


def ids(retriever: Retriever, k: int = 9) -> list[str]:
    return [passage.id for passage in retriever.search(["q"], k)[0]]


def test_two_rankings_become_one_and_both_are_read_deeper_than_asked() -> None:
    vector, words = Fixed(a=0.9, b=0.8, c=0.1), Fixed(d=12.0, b=10.0, a=2.0)
    made = make_hybrid(CORPUS, vector=vector, bm25=words, vector_weight=0.5, depth=4)
    (found,) = made.search(["q"], 9)
    assert [p.id for p in found] == ["b", "a", "d", "c"]
    assert [p.score for p in found] == pytest.approx([(0.875 + 0.8) / 2, 0.5, 0.5, 0.0])
    assert (found[0].text, found[0].title) == ("text b", "title b")
    assert ids(made, 1) == ["b"] and ids(made, 0) == []
    assert vector.asked == words.asked == [(["q"], 27), (["q"], 4)]


def test_if_nobody_says_words_count_most_and_100_passages_are_read() -> None:
    vector, words = Fixed(a=0.9, b=0.8), Fixed(c=12.0, d=10.0)
    (found,) = make_hybrid(CORPUS, vector=vector, bm25=words).search(["q"], 9)
    assert [(p.id, p.score) for p in found[:2]] == [("c", pytest.approx(0.85)), ("a", 0.15)]
    assert vector.asked == words.asked == [(["q"], 100)]


def test_weights_0_and_1_ask_only_the_other() -> None:
    vector, words = Fixed(a=1.0, b=0.5), Fixed(b=1.0, c=0.5)
    assert ids(make_hybrid(CORPUS, vector=vector, bm25=words, vector_weight=0)) == ["b", "c"]
    assert not vector.asked
    assert ids(make_hybrid(CORPUS, vector=vector, bm25=words, vector_weight=1)) == ["a", "b"]
    assert len(words.asked) == 1


@pytest.mark.parametrize(
    "wrong", [{"vector_weight": -1}, {"vector_weight": 2}, {"vector_weight": math.nan},
              {"depth": 0}, {"vector_wight": 1}, {"bm25": {"name": "bm25s", "k2": 2}}]
)  # fmt: skip
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    registry = load_plugins(["searchrl_retrieval"], entry_points=False)
    parts = {"vector": "random", "bm25": {"name": "bm25s", "title_weight": 2}}
    assert ids(make_retriever_factory(registry, "hybrid", parts)(CORPUS), 1)
    with pytest.raises(ConfigError, match="k2|" + next(iter(wrong))):
        make_retriever_factory(registry, "hybrid", parts | wrong)(CORPUS)


def test_a_part_that_fails_fails_the_search() -> None:
    class Short(Fixed):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return []

    with pytest.raises(RetrieverFailure, match="hybrid: Short gave 0 results for 1 queries"):
        make_hybrid(CORPUS, vector=Short(), bm25=Fixed(a=1.0)).search(["q"], 1)


def test_it_has_stored_passages_if_its_parts_have() -> None:
    kept = make_hybrid(CORPUS, vector=Kept(a=1.0), bm25=Kept(b=1.0))
    assert isinstance(kept, StoredRetriever)
    assert kept.stored(["a", "x"]) == [CORPUS[0], None]
    mixed = make_hybrid(CORPUS, vector=Fixed(a=1.0), bm25=Kept(b=1.0))
    assert not isinstance(mixed, StoredRetriever)
