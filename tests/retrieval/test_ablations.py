"""The ablations: random is random but repeatable, empty is empty."""

from __future__ import annotations

from collections import Counter

from searchrl.contracts.retrieving import RankingRetriever
from searchrl.core.episode import Passage
from searchrl.retrieval.ablations import EmptyRetriever, RandomRetriever

PASSAGES = [Passage(str(i), f"text {i}") for i in range(20)]


def test_random_depends_on_seed_and_query_not_on_call_order() -> None:
    first, second = RandomRetriever(PASSAGES, seed=1), RandomRetriever(PASSAGES, seed=1)
    expected = first.search(["a", "b"], 3)
    second.search(["z", "y"], 5)
    assert [second.search(["b"], 3)[0], second.search(["a"], 3)[0]] == expected[::-1]
    assert RandomRetriever(PASSAGES, seed=2).search(["a", "b"], 3) != expected
    assert expected[0] != expected[1]


def test_random_is_uniform_and_without_repeats() -> None:
    results = RandomRetriever(PASSAGES).search([f"query {i}" for i in range(2000)], 3)
    assert all(len({p.id for p in result}) == 3 for result in results)
    counts = Counter(p.id for result in results for p in result)
    assert set(counts) == {p.id for p in PASSAGES}
    assert all(220 < count < 390 for count in counts.values())  # expected 300, sd 16


def test_random_with_more_asked_than_there_is_gives_all() -> None:
    (found,) = RandomRetriever(PASSAGES[:2]).search(["q"], 5)
    assert {p.id for p in found} == {"0", "1"}


def test_empty_gives_one_empty_result_per_query() -> None:
    assert EmptyRetriever(PASSAGES).search(["text 1", "x"], 3) == [[], []]


def test_empty_ranks_nothing_and_random_tells_no_ranks() -> None:
    passages = [Passage("a", "text")]
    assert EmptyRetriever(passages).ranks(["q", "r"], ["a"]) == [{"a": None}, {"a": None}]
    assert not isinstance(RandomRetriever(passages), RankingRetriever)
