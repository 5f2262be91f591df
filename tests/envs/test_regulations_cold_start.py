"""What only cold starts ask of `regulations`: drills, and handbooks with random words."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from playing import env_of, make_env, mean, play

from searchrl.core.episode import Passage
from searchrl.envs.regulations import make_expert
from searchrl.envs.regulations.questions import DRILL
from searchrl.envs.regulations.world.drills import insert_words, replace_words
from searchrl.envs.regulations.world.names import Value, ValueKind
from searchrl.envs.regulations.world.prose import Article, Statement
from searchrl.errors import ConfigError

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("share", [0.0, 0.35])
def test_noise_is_the_share_of_the_handbooks_with_random_words(share: float) -> None:
    """In every split: an evaluation without it needs a configuration without it."""
    env, clean = make_env(noise=share, difficulty="easy"), env_of("easy")
    for split in ("train", "validation", "test"):
        schools = [env.school(split, number) for number in range(200)]
        assert mean(school.is_noisy for school in schools) == pytest.approx(share, abs=0.08)
        for number, school in enumerate(schools[:40]):
            usual = clean.school(split, number)
            assert school.name == usual.name
            # The others are the same as without noise.
            assert (school.passages == usual.passages) == (not school.is_noisy)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="env.noise is a share of schools, from 0 to 1"):
        make_env(noise=share)


ARTICLE = Article(
    Passage("art-01", "Whoever keeps a library book too long pays £14, says the librarian. "
            "Until last year it was £12. Mara Oakley knows why.", "Late books"),
    (Statement("library-fine", "library-fine", Value(ValueKind.MONEY, "£14"),
               "Whoever keeps a library book too long pays £14"),),
)  # fmt: skip


def test_words_are_replaced_in_the_clause_as_in_the_text() -> None:
    for seed in range(50):
        changed = replace_words(ARTICLE, Random(seed), 0.6)
        (stated,) = changed.statements
        text = changed.passage.text
        assert changed.passage.title == "Late books" and changed.passage.id == "art-01"
        assert stated.clause in text and text.startswith(stated.clause)
        assert stated.clause.startswith("Whoever ") and stated.clause.endswith("£14")
        # Values, names, the words of the gist, and those that say that it no longer holds.
        for kept in ("library", "£12", "Until last year", "was", "Mara Oakley"):
            assert kept in text, (kept, text)
        assert text != ARTICLE.passage.text


def test_words_are_put_between_the_first_and_the_last_word_of_a_question() -> None:
    question = "Who runs the chess club?"
    for seed in range(30):
        longer = insert_words(question, Random(seed)).split()
        # An invented word may have a number behind it.
        assert 1 <= len(longer) - len(question.split()) <= 4
        assert longer[0] == "Who" and longer[-1] == "club?"
        rest = iter(longer)
        assert all(word in rest for word in question.split())
    # A word of its own stays one: something may follow it.
    assert insert_words("Why?", Random(0)).startswith("Why? ")


ONLY = {"mix": {DRILL: 1.0}}


def test_drills_are_asked_only_where_the_mix_names_them() -> None:
    assert DRILL not in {make_env().kind_of("train", i) for i in range(500)}
    some = make_env(mix={"lookup": 1, DRILL: 3})
    kinds = Counter(some.kind_of("train", i) for i in range(400))
    assert abs(kinds[DRILL] - 300) <= 4


def test_the_expert_solves_drills_by_one_search_and_a_copy() -> None:
    env = make_env(**ONLY)
    games = [play(env, make_expert, split="train", index=i) for i in range(300)]
    assert mean(game.reward for game in games) >= 0.97
    silent = [game for game in games if not game.task.gold_ids]
    assert 0.1 <= len(silent) / len(games) <= 0.3
    assert {game.task.answers for game in silent} == {("not regulated",)}
    for game in (game for game in games if game.task.gold_ids):
        texts = {p.id: p.text for p in env.passages(game.task)[1]}
        assert re.search(rf"(?<!\w){re.escape(game.task.answers[0])}(?!\w)",
                         texts[game.task.gold_ids[0]])  # fmt: skip
