"""nDCG by hand, and both measures against ir-measures."""

from __future__ import annotations

import math
import random

import pytest
from searchrl_control.environment.measures import CUTOFF, dcg, ndcg, recall
from searchrl_retrieval.evaluation.measures import measure

L3, L4 = math.log2(3), 2.0


@pytest.mark.parametrize(
    ("ranking", "qrels", "expected"),
    [
        (["a", "b", "c"], {"a": 1}, 1.0),
        (["b", "a", "c"], {"a": 1}, 1 / L3),
        (["a", "b", "c"], {"a": 1, "c": 1}, (1 + 1 / L4) / (1 + 1 / L3)),
        # Graded: the best order is 2, 1.
        (["a", "b"], {"a": 1, "b": 2}, (1 + 2 / L3) / (2 + 1 / L3)),
        # A relevant passage that nobody found, in the corpus or not, counts.
        (["a", "b"], {"a": 1, "lost": 1}, 1 / (1 + 1 / L3)),
        (["a", "b"], {"a": 0, "b": -1}, 0.0),
        ([], {"a": 1}, 0.0),
        (["b", "b", "a"], {"a": 1}, 1 / L3),
        ([f"x{n}" for n in range(CUTOFF)] + ["a"], {"a": 1}, 0.0),
    ],
)
def test_ndcg_by_hand(ranking: list[str], qrels: dict[str, int], expected: float) -> None:
    assert ndcg(ranking, qrels) == pytest.approx(expected, abs=1e-12)


def test_dcg_by_hand() -> None:
    assert dcg([3, 0, 2]) == pytest.approx(3 + 2 / 2.0, abs=1e-12)


def test_both_measures_are_those_of_ir_measures_within_1e_9() -> None:
    rng = random.Random(0)
    names = [f"d{number}" for number in range(40)]
    qrels, rankings = {}, {}
    for number in range(60):
        judged = rng.sample([*names, "lost", "gone"], rng.randint(1, 20))
        qrels[f"q{number}"] = {name: rng.choice([0, 0, 1, 1, 2, 3]) for name in judged}
        qrels[f"q{number}"][rng.choice(names)] = 1
        rankings[f"q{number}"] = rng.sample(names, rng.randint(1, 30))
    theirs = measure(qrels, rankings, (10,))
    for question, ranking in rankings.items():
        ours = ndcg(ranking, qrels[question]), recall(ranking, qrels[question])
        expected = theirs["ndcg@10"][question], theirs["recall@10"][question]
        assert ours == pytest.approx(expected, abs=1e-9)
    assert len({round(value, 6) for value in theirs["ndcg@10"].values()}) > 40
