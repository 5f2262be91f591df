"""Searches of one collection, measures and signs: against libraries and by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_toy import PASSAGES, QUESTIONS, WordEncoder, make_library
from searchrl_control.environment.features import (
    ListFeatures,
    bounded,
    query_features,
    tell_candidates,
)
from searchrl_control.environment.games import HeadGame
from searchrl_control.environment.measures import ndcg, recall
from searchrl_control.environment.settings import HEADS, SETS
from searchrl_control.searching.library import Library, TermIndex
from searchrl_control.searching.question import Found, Question, fuse, points
from searchrl_control.searching.reformulators import Asked, Classical, Neighbours, Rewrite
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.evaluation.measures import measure

from searchrl.contracts import Passage

TEXTS = [text for text, _ in QUESTIONS.values()]


def found(scores: Any) -> Found:
    scores_N = np.array(scores, dtype=np.float32)
    return Found(scores_N, scores_N > 0)


def test_words_are_those_of_the_retriever_bm25s() -> None:
    retriever = make_bm25s(PASSAGES)
    index = TermIndex(PASSAGES)
    for text in [*TEXTS, "zebra"]:
        theirs = retriever.search([text], 10)[0]
        scores = index.score(index.query(text))
        ours = found(scores).first(10)
        assert [PASSAGES[place].id for place in ours] == [passage.id for passage in theirs]
        assert scores[ours] == pytest.approx([passage.score for passage in theirs], rel=1e-6)


def test_a_weight_counts_as_often_as_it_says() -> None:
    index = TermIndex(PASSAGES)
    query = index.query("salt honey")
    doubled = index.score(dict.fromkeys(query, 2.0))
    assert doubled == pytest.approx(2 * index.score(query), rel=1e-6) and doubled.max() > 0
    assert index.query_of(index.weights_of(query)) == query
    assert index.query_of({"salt": 1.0, "nowhere": 1.0, "honey": 0.0}).keys() == {
        *index.query("salt")
    }


def test_equal_scores_keep_the_order_of_the_corpus_at_every_cut() -> None:
    scores = found([1, 2, 1, 0, 2, 1])
    assert scores.first(10).tolist() == [1, 4, 0, 2, 5]
    for k in range(6):
        assert scores.first(k).tolist() == [1, 4, 0, 2, 5][:k]
    many = found([1.0] * 500)
    assert many.first(40).tolist() == list(range(40))


def test_points_by_hand() -> None:
    told = points(found([4, 0, 2, 3]), depth=3)
    assert told.scores_N.tolist() == [1, 0, 0, 0.5] and told.first(9).tolist() == [0, 3, 2]
    assert points(found([2, 2, 0])).scores_N.tolist() == [1, 1, 0]


def test_fusion_by_hand() -> None:
    """Points of the first are 1, 0, .5 at the places 0, 2, 3; of the second 0, 1 at 1, 2."""
    told = fuse(found([4, 0, 2, 3, 0]), found([0, 1, 3, 0, 0]), 0.3)
    assert told.scores_N.tolist() == pytest.approx([0.7, 0.0, 0.3, 0.35, 0.0])
    assert told.first(9).tolist() == [0, 3, 2, 1]


def test_rm3_by_hand() -> None:
    first = (Passage("a", "fox fox hen", score=3.0), Passage("b", "hen owl", score=1.0))
    elks = tuple(Passage(f"x{n}", "elk", score=0.5) for n in range(40))
    sixth = Passage("gnu", "gnu", score=9.0)
    classical = Classical(make_library([*first, *elks, sixth]))

    def narrow(*passages: Passage) -> Rewrite:
        return classical.narrow(Asked("fox", {"fox": 1.0}, passages))

    # P(t|R): fox 3/4 * 2/3 = .5, hen 3/4 * 1/3 + 1/4 * 1/2 = .375, owl .125.
    told = narrow(*first)
    assert told.weights == pytest.approx({"fox": 0.7 + 0.15, "hen": 0.1125, "owl": 0.0375})
    assert told.text == "fox hen owl"
    # The sixth passage is not read, and elk stands in over a tenth of the passages.
    assert narrow(*first, *elks[:3], sixth).weights == pytest.approx(told.weights)
    # Scores that are not above 0 count as equal: fox 1/2 * 2/3, hen 1/2 * 1/3 + 1/4, owl 1/4.
    told = narrow(*(replace(one, score=0.0) for one in first))
    assert told.weights == pytest.approx({"fox": 0.7 + 0.1, "hen": 0.125, "owl": 0.075})


def test_rm3_takes_nothing_from_nothing() -> None:
    classical = Classical(make_library())
    assert classical.narrow(Asked("salt", {"salt": 2.0}, ())).weights == {"salt": 2.0}
    assert classical.narrow(Asked("salt", {}, PASSAGES[:1])).weights == {}


def test_broad_drops_the_terms_of_low_value_and_adds_neighbours() -> None:
    passages = [Passage(f"p{n}", "elk owl" if n % 2 else "elk fox hen gnu") for n in range(8)]
    library = make_library(passages)
    classical = Classical(library)
    (hen,), (elk,) = (library.terms.query(word) for word in ("hen", "elk"))
    classical._neighbours.of = lambda number: ((elk, 0.5),) if number == hen else ()
    told = classical.broaden(Asked("?", dict.fromkeys(("hen", "elk", "fox", "owl", "gnu"), 1.0)))
    left = dict.fromkeys(("hen", "fox", "owl", "gnu"), 1.0)
    assert told.weights == {**left, "elk": pytest.approx(0.2)}


def test_neighbours_are_the_two_nearest_of_at_least_three_letters() -> None:
    words = "salt honey bees glass owl fox hen elk gnu yak emu cat dog ape rat bat ant cod eel cu"
    library = make_library([Passage(f"p{n}", words) for n in range(3)])
    names, near = library.terms.names, Neighbours(library)
    vectors = WordEncoder().encode_queries(list(names))
    for number, own in enumerate(vectors @ vectors.T):
        order = [n for n in np.argsort(-own) if n != number and len(names[n]) > 2 and own[n] > 0.45]
        assert near.of(number) == [(n, pytest.approx(own[n], abs=1e-6)) for n in order[:2]]


def test_a_passage_links_to_the_titles_that_it_names() -> None:
    library = make_library()
    harbour, quill = (library.place_of[name] for name in ("harbour", "quill"))
    covered = library.links(harbour)
    assert covered[quill] == pytest.approx(1.0) and covered[harbour] == 0
    salt, market = (library.terms.idf_V[[*library.terms.query(one)]] for one in ("salt", "market"))
    share = float(salt[0] / (salt[0] + market[0]))  # of "Market of salt"
    covered = library.links(library.place_of["salt"])
    assert covered[library.place_of["market"]] == pytest.approx(share)
    assert library.links(quill)[harbour] == 0


def test_what_a_passage_has_counts_less_in_the_rest() -> None:
    library = make_library()
    query = library.terms.query("Tolmere island")
    rest = library.residual(query, library.place_of["harbour"])
    assert [rest[number] for number in query] == [0.3, 1.0]


def test_following_finds_the_second_passage() -> None:
    """Half the fused points, half the mean points of the rests, .3 times the squared titles."""
    library = make_library()
    question = Question(library, "Tolmere harbour")
    assert np.array_equal(
        question.fused.scores_N, points(fuse(question.words, question.similar, 0.3)).scores_N
    )
    places = question.fused.first(3).tolist()
    rests = [points(question.search_words(library.residual(question.query, one))) for one in places]
    named = np.max([library.links(one) for one in places], axis=0)
    left = np.mean([one.scores_N for one in rests], axis=0)
    assert question.followed.scores_N == pytest.approx(
        0.5 * question.fused.scores_N + 0.5 * left + 0.3 * named**2, abs=1e-6
    )
    assert np.array_equal(question.followed.is_in_N, question.followed.scores_N > 0)
    quill = library.place_of["quill"]
    vars(question)["fused"] = question.words  # then only its title finds it
    assert quill in question.follow(places, 0.3).first(8)
    assert quill not in question.words.first(8) and quill in question.followed.first(3)


def test_a_question_that_is_a_passage_never_finds_itself() -> None:
    library = make_library()
    place = library.place_of["honey"]
    text = library.passages[place].text
    plain, itself = Question(library, text), Question(library, text, place)
    for name in ("words", "similar", "fused", "followed"):
        assert place in getattr(plain, name).first(8)
        assert place not in getattr(itself, name).first(8)
    assert place not in itself.follow([0, 1], 0.6).first(8)


def test_vectors_are_computed_once_and_again_only_where_something_changed(tmp_path: Path) -> None:
    def encoded(passages: tuple[Passage, ...], name: str = "words") -> int:
        encoder: Any = WordEncoder(name)
        library = Library(passages, encoder, tmp_path)
        count = encoder.num_texts
        assert np.array_equal(library.vectors_ND, encoder.encode_passages(passages))
        return int(count)

    assert encoded(PASSAGES) == len(PASSAGES)
    assert encoded(PASSAGES) == 0
    assert encoded((*PASSAGES[:-1], Passage("bees", "a new text"))) == len(PASSAGES)
    assert encoded(PASSAGES, "other words") == len(PASSAGES)
    for file in tmp_path.glob("*.npy"):
        file.write_bytes(b"damaged")
    assert encoded(PASSAGES) == len(PASSAGES)


def test_idf_is_that_of_lucene() -> None:
    index = TermIndex(PASSAGES)
    (number,) = index.query("Tolmere")
    assert index.idf_V[number] == pytest.approx(math.log1p((8 - 1 + 0.5) / 1.5))


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


SIGNS = {
    "terms": "0.7 0.1452 0.1792 0.0944 0.0629 0.4825",
    "words": "0.0161 0.6958 0.2285 0.9814 0.14 0.1374 0.1168 0.219 0.6976 0.219 0.5659 0.4714 "
    "0.3888 0.5659 0.1961 0.7 0.7 0.7 0 0.6667 1 0 0 1.6094 1 1 0.4169 0 0.2327",
    "followed": "0.1522 1 0.3063 0.8847 0.1345 0.1306 0.1022 0.3526 0.8237 0.219 0.5438 0.3714 "
    "0.3402 0.5438 0.1961 0.7 0.8 0.8 1 0.3333 0 0 0 0 0 0 0 0.4169 0.2327",
    "few": "0.2787 0.6001 0.2452 0.7071 0.4945 0.3496 0.3496 0.5831 1 0.4169 0.3911 0.2842 0.2842 "
    "0.4092 0.4685 0.3 0.3 1 0 1 1 1 0.3333 1.0986 1 1 1 0 0.6343",
    # Sums over the seven sources.
    "none kept": "5.8966 3.2142 5.9206 5.9218 5.8966 5.1811 5.1811 5 2.8 4.6667 5 5 3 3 0.829 "
    "3.3514 -0.0443 4 0.3521 2.8571 1.5812 0 0 6 0",
    "two kept": "6.845 4.2142 6.8809 6.8827 6.845 6.1811 5.3267 5.5 3.8 5 5.5 5.5 4 4.3333 0.9635 "
    "3.8953 -0.0664 4 1.2877 3.5714 1.4296 3 4 4.0012 3.1796",
}


def test_signs_are_those_that_the_usual_values_were_measured_of() -> None:
    """Seven terms over eight passages: .7, and a mean IDF of 1.452 (nats) over 10, come first."""
    library = make_library()
    question = Question(library, "who was the engineer that dug the harbour where salt and honey "
                        "are sold")  # fmt: skip
    few, lists = Question(library, "Tolmere bees"), ListFeatures(question)
    sources = HeadGame(question, SETS[HEADS], Classical(library))
    kept = tuple(library.place_of[name] for name in ("harbour", "glass"))
    found = {
        "terms": query_features(question),
        "words": lists.of(question.words, question.similar),
        "followed": lists.of(question.followed, question.fused),
        "few": ListFeatures(few).of(few.words),
        "none kept": tell_candidates(sources, ()).sum(axis=0),
        "two kept": tell_candidates(sources, kept).sum(axis=0),
    }
    for name, signs in found.items():
        assert signs.tolist() == pytest.approx([*map(float, SIGNS[name].split())], abs=1e-4), name
    assert not lists.of(Question(library, "zebra").words).any()
    assert bounded([11.0, -11.0]).tolist() == [10, -10]
