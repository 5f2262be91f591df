"""The world of the tiny model's cold start, examples/tiny: drills, random words, bad habits."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from playing import PROTOCOL, make_env, mean, play

from searchrl.core.episode import Passage
from searchrl.envs.regulations import make_expert
from searchrl.envs.regulations.world.names import Value, ValueKind
from searchrl.envs.regulations.world.prose import Article, Statement
from searchrl.retrieval.bm25 import BM25Retriever

pytestmark = pytest.mark.thorough

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/tiny"))
import cold_start  # noqa: E402
import random_words  # noqa: E402

ARTICLE = Article(
    Passage("art-01", "Whoever keeps a library book too long pays £14, says the librarian. "
            "Until last year it was £12. Mara Oakley knows why.", "Late books"),
    (Statement("library-fine", "library-fine", Value(ValueKind.MONEY, "£14"),
               "Whoever keeps a library book too long pays £14"),),
)  # fmt: skip


def test_words_are_replaced_in_the_clause_as_in_the_text() -> None:
    for seed in range(50):
        changed = random_words.replace_words(ARTICLE, Random(seed), 0.6)
        (stated,), text = changed.statements, changed.passage.text
        assert stated.clause in text and text.startswith(stated.clause) and text != ARTICLE[0].text
        assert stated.clause.startswith("Whoever ") and stated.clause.endswith("£14")
        # Values, names, the words of the gist, and those that say that it no longer holds.
        for kept in ("library", "£12", "Until last year", "was", "Mara Oakley"):
            assert kept in text, (kept, text)


def test_words_are_put_between_the_first_and_the_last_word_of_a_question() -> None:
    question = "Who runs the chess club?"
    for seed in range(30):
        longer = random_words.insert_words(question, Random(seed)).split()
        assert 1 <= len(longer) - len(question.split()) <= 4
        assert longer[0] == "Who" and longer[-1] == "club?"


def test_the_expert_solves_the_world() -> None:
    env = cold_start.ColdStartEnv(protocol=PROTOCOL, retriever=BM25Retriever)
    games = [play(env, make_expert, split="train", index=index) for index in range(300)]
    assert mean(game.reward for game in games) >= 0.98
    drills = [game for game in games if game.task.kind == "drill"]
    assert len(drills) / len(games) == pytest.approx(cold_start.DRILLS, abs=0.04)
    assert 0.05 <= mean(not game.task.gold_ids for game in drills) <= 0.4
    usual, noisy = make_env(), []
    for game in games:
        if game.task.kind != "drill":
            number = game.task.meta["school_number"]
            noisy.append(
                env.school("train", number).passages != usual.school("train", number).passages
            )
            assert game.task.meta["queries"][0] in game.task.question
    assert mean(noisy) == pytest.approx(cold_start.NOISE, abs=0.1)


def test_the_passive_policy_answers_at_once_and_the_same_for_a_kind_of_value() -> None:
    env = cold_start.ColdStartEnv(protocol=PROTOCOL, retriever=BM25Retriever)
    said: dict[str, set[str]] = {}
    for index in range(100):
        game = play(env, cold_start.make_passive, split="train", index=index)
        (turn,) = game.turns
        said.setdefault(game.task.meta["value_kind"], set()).add(turn)
    assert len(said) > 5 and all(len(turns) == 1 for turns in said.values())
