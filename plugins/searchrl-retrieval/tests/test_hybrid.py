"""`hybrid` over retrievers of any kind: depth, weights, parts by name, failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from searchrl_retrieval.hybrid import VECTOR_WEIGHT, make_hybrid

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


def test_two_rankings_become_one() -> None:
    vector, words = Fixed(a=0.9, b=0.8, c=0.1), Fixed(d=12.0, b=10.0, a=2.0)
    made = make_hybrid(CORPUS, vector=vector, bm25=words, vector_weight=1, bm25_weight=1)
    (found,) = made.search(["q"], 9)
    assert [p.id for p in found] == ["b", "a", "d", "c"]
    expected = [(0.875 + 0.8) / 2, 0.5, 0.5, 0.0]
    assert [p.score for p in found] == pytest.approx(expected)
    assert (found[0].text, found[0].title) == ("text b", "title b")
    ranks = make_hybrid(
        CORPUS, vector=vector, bm25=words, vector_weight=1, bm25_weight=1, fusion="rrf"
    )
    assert ids(ranks) == ["a", "b", "d", "c"]
    assert ids(made, 2) == ["b", "a"] and ids(made, 0) == []


def test_parts_are_read_to_the_same_depth_whatever_k_is() -> None:
    vector, words = Fixed(a=1.0), Fixed(b=1.0)
    made = make_hybrid(CORPUS, vector=vector, bm25=words, depth=4)
    made.search(["q", "r"], 2)
    made.search(["q"], 7)
    assert vector.asked == words.asked == [(["q", "r"], 4), (["q"], 7)]


def test_weight_0_asks_only_the_other() -> None:
    vector, words = Fixed(a=1.0, b=0.5), Fixed(b=1.0, c=0.5)
    made = make_hybrid(CORPUS, vector=vector, bm25=words, vector_weight=0)
    assert ids(made) == ["b", "c"] and not vector.asked
    made = make_hybrid(CORPUS, vector=vector, bm25=words, bm25_weight=0)
    assert ids(made) == ["a", "b"] and len(words.asked) == 1


def test_only_the_ratio_of_the_weights_counts() -> None:
    parts = {"vector": Fixed(a=0.9, b=0.8, c=0.1), "bm25": Fixed(d=12.0, b=10.0, a=2.0)}
    default = make_hybrid(CORPUS, **parts).search(["q"], 9)
    same = make_hybrid(
        CORPUS, **parts, vector_weight=10 * VECTOR_WEIGHT, bm25_weight=10 * (1 - VECTOR_WEIGHT)
    ).search(["q"], 9)
    assert [p.id for p in same[0]] == [p.id for p in default[0]]
    assert [p.score for p in same[0]] == pytest.approx([p.score for p in default[0]])


@pytest.mark.parametrize(
    "wrong",
    [
        {"vector_weight": -1},
        {"vector_weight": 0, "bm25_weight": 0},
        {"bm25_weight": math.nan},
        {"bm25_weight": math.inf},
        {"depth": 0},
    ],
)
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    registry = load_plugins(["searchrl_retrieval"], entry_points=False)
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        make_retriever_factory(registry, "hybrid", wrong)(CORPUS)


def test_a_part_that_fails_fails_the_search() -> None:
    class Broken(Fixed):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            raise ConnectionError("down")

    class Short(Fixed):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return []

    with pytest.raises(ConnectionError):
        make_hybrid(CORPUS, vector=Broken(), bm25=Fixed(a=1.0)).search(["q"], 1)
    with pytest.raises(RetrieverFailure, match="its part vector gave 0 results for 1 queries"):
        make_hybrid(CORPUS, vector=Short(), bm25=Fixed(a=1.0)).search(["q"], 1)


def test_it_has_stored_passages_if_its_parts_have() -> None:
    kept = make_hybrid(CORPUS, vector=Kept(a=1.0), bm25=Kept(b=1.0))
    assert isinstance(kept, StoredRetriever)
    assert kept.stored(["a", "x"]) == [CORPUS[0], None]
    mixed = make_hybrid(CORPUS, vector=Fixed(a=1.0), bm25=Kept(b=1.0))
    assert not isinstance(mixed, StoredRetriever)


def test_parts_are_named_in_a_configuration() -> None:
    registry = load_plugins(["searchrl_retrieval"], entry_points=False)
    settings = {"vector": "random", "bm25": {"name": "bm25s", "title_weight": 2}}
    factory = make_retriever_factory(registry, "hybrid", settings)
    assert ids(factory(CORPUS), 1) == ids(factory(CORPUS), 1)
    with pytest.raises(ConfigError, match="retriever 'bm25s' has no setting 'k2'"):
        make_retriever_factory(registry, "hybrid", {"bm25": {"name": "bm25s", "k2": 2}})
    with pytest.raises(ConfigError, match="retriever 'hybrid': cannot use fusion = 'max'"):
        make_retriever_factory(registry, "hybrid", {"fusion": "max"})
