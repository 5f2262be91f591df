"""nDCG and the signs of a candidate by hand, and both measures against ir-measures."""

from __future__ import annotations

import math
import random

import pytest
from control_toy import make_library
from searchrl_control.environment.actions import HEADS, SETS, Action
from searchrl_control.environment.features import CANDIDATE_FEATURES, SOURCES, tell_candidates
from searchrl_control.environment.games import HeadGame
from searchrl_control.environment.measures import CUTOFF, ndcg, recall
from searchrl_control.reformulate.classical import Classical
from searchrl_control.searchers.question import Question
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


def test_the_signs_of_a_candidate_by_hand() -> None:
    """The next passage of a source: its lead on the one after it, and what it adds to all kept."""
    library = make_library()
    question = Question(library, "where does honey of the hive and salt of the sea come from")
    sources = HeadGame(question, SETS[HEADS], Classical(library))
    lists = sources.features
    kept = tuple(library.place_of[name] for name in ("salt", "bees"))
    shown = tell_candidates(sources, kept)
    row = SOURCES.index(Action.WORDS)
    told = dict(zip(CANDIDATE_FEATURES, shown[row].tolist(), strict=True))
    order = [place for place in sources.order(Action.WORDS, kept) if place not in kept]
    scores = question.words.scores_N
    assert told["source_gap"] == pytest.approx(float(scores[order[0]] - scores[order[1]]))
    assert told["source_gap"] > 0
    has = [lists.share_of(place) for place in (*kept, order[0])]
    assert told["left"] == pytest.approx(lists.idf_share(~(has[0] | has[1])))
    assert told["adds"] == pytest.approx(lists.idf_share(has[2] & ~(has[0] | has[1])))
    assert told["left"] < lists.idf_share(~has[1]), "the first one that was kept counts, too"
