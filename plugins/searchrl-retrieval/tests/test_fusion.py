"""Fusion of rankings: by hand, and what must hold for any rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searchrl_retrieval.fusion import fuse, min_max

from searchrl import RetrieverFailure
from searchrl.contracts import Passage

Ranking = list[Passage]

numbers = st.floats(-1e308, 1e308)
weights = st.floats(1e-3, 1e3)


def ranking(scores: Sequence[tuple[str, float]]) -> Ranking:
    return [Passage(name, f"text of {name}", score=score) for name, score in scores]


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    """A ranking of some of ten passages, often with ties."""
    names = draw(st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10))
    few = st.sampled_from([0.0, 1.0, 2.0, -3.5])
    size = len(names)
    scores = draw(st.lists(st.one_of(few, numbers), min_size=size, max_size=size))
    return ranking(list(zip(names, sorted(scores, reverse=True), strict=True)))


def scores_of(fused: Sequence[Passage]) -> dict[str, float]:
    return {passage.id: passage.score for passage in fused}


def test_by_hand() -> None:
    left = ranking([("a", 12.0), ("b", 9.0), ("c", 6.0)])
    right = [*ranking([("c", 0.9), ("d", 0.5)]), Passage("a", "said otherwise", score=0.4)]
    fused = fuse([left, right], [3, 1])
    assert [p.id for p in fused] == ["a", "b", "c", "d"]
    assert [p.score for p in fused] == pytest.approx([0.75, 0.375, 0.25, 0.05])
    assert [p.text for p in fused] == [f"text of {p.id}" for p in fused]


def test_ties_missing_and_doubled_passages() -> None:
    assert min_max([]) == [] and min_max([5.0]) == [1.0] and min_max([2.0, 2.0]) == [1.0, 1.0]
    assert min_max([1e308, -1e308]) == [1.0, 0.0]
    # Found by one of two, and last there: no points, and still found.
    assert scores_of(fuse([ranking([("a", 1), ("b", 0)]), []], [1, 1])) == {"a": 0.5, "b": 0.0}
    twice = ranking([("a", 4), ("b", 3), ("b", 2), ("c", 0)])
    once = ranking([("a", 4), ("b", 3), ("c", 0)])
    assert fuse([twice, once], [1, 1]) == fuse([once, once], [1, 1])
    # Equal scores stand as they came, those of the first ranking first.
    left, right = ranking([("c", 1), ("b", 1), ("a", 0)]), ranking([("e", 7), ("d", 7)])
    assert [p.id for p in fuse([left, right], [1, 1])] == ["c", "b", "e", "d", "a"]
    assert [p.id for p in fuse([right, left], [1, 1])] == ["e", "d", "c", "b", "a"]


@given(rankings(), rankings(), weights, weights, st.permutations("abcdefghij"))
def test_what_holds_for_all(
    left: Ranking, right: Ranking, one: float, two: float, names: list[str]
) -> None:
    fused = fuse([left, right], [one, two])
    scores = [passage.score for passage in fused]
    assert sorted(scores, reverse=True) == scores
    assert all(0 <= score <= 1 for score in scores)
    assert {p.id for p in fused} == {p.id for p in left} | {p.id for p in right}
    assert len(fused) == len(scores_of(fused))
    # Best in both lists: the best of all.
    if left and right and left[0].id == right[0].id:
        assert scores_of(fused)[left[0].id] == scores[0] == pytest.approx(1)
    # The order of the rankings and of their passages changes no score, to the last bit.
    assert scores_of(fuse([right, left], [two, one])) == scores_of(fused)
    assert scores_of(fuse([left[::-1], right[::-1]], [one, two])) == scores_of(fused)
    # With other names, every place keeps its passage.
    new = dict(zip("abcdefghij", names, strict=True))
    renamed = [[Passage(new[p.id], p.text, score=p.score) for p in r] for r in (left, right)]
    expected = [(new[p.id], p.score) for p in fused]
    assert [(p.id, p.score) for p in fuse(renamed, [one, two])] == expected


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_a_failure(wrong: float) -> None:
    with pytest.raises(RetrieverFailure, match=r"passage 'a' has the score (nan|inf)"):
        fuse([ranking([("a", wrong)]), ranking([("b", 1)])], [1, 1])
