"""The ablations: random is random but repeatable, empty is empty."""

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


def test_empty_gives_one_empty_result_per_query() -> None:
    assert EmptyRetriever(PASSAGES).search(["text 1", "x"], 3) == [[], []]


def test_empty_ranks_nothing_and_random_tells_no_ranks() -> None:
    passages = [Passage("a", "text")]
    assert EmptyRetriever(passages).ranks(["q", "r"], ["a"]) == [{"a": None}, {"a": None}]
    assert not isinstance(RandomRetriever(passages), RankingRetriever)
