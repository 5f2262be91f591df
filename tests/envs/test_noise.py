"""Noise in `regulations`: random words in a share of the handbooks, for cold starts only."""

from __future__ import annotations

import re
from random import Random

import pytest
from playing import LEVELS, env_of, make_env, mean

from searchrl.core.episode import Passage
from searchrl.envs.regulations import RegulationsEnv
from searchrl.envs.regulations.world.drills import insert_words, replace_words
from searchrl.envs.regulations.world.names import Value, ValueKind
from searchrl.envs.regulations.world.prose import Article, Statement
from searchrl.envs.regulations.world.school import School
from searchrl.errors import ConfigError

pytestmark = pytest.mark.thorough


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def noisy(level: str) -> RegulationsEnv:
    """The world with random words in every handbook."""
    return make_env(difficulty=level, noise=1.0)


def words_in(schools: list[School]) -> set[str]:
    """The words in lower case of all articles, without names and values."""
    texts = [article.passage.text for school in schools for article in school.articles]
    return {word for text in texts for word in re.findall(r"(?<![\w£:@-])[a-z]{3,}\b", text)}


def schools_of(env: RegulationsEnv, split: str, count: int = 30) -> list[School]:
    return [env.school(split, number) for number in range(count)]


# Which handbooks have it.
def test_no_handbook_has_noise_unless_the_setting_asks_for_it(level: str) -> None:
    env = make_env(difficulty=level)
    assert env.noise == 0.0
    for split in ("train", "validation", "test"):
        assert not any(school.is_noisy for school in schools_of(env, split))
    # Enough handbooks show all the words that the lists hold; noise brings others.
    usual = words_in([*schools_of(env, "train", 60), *schools_of(env, "test", 60)])
    noisy = words_in(schools_of(make_env(difficulty=level, noise=1.0), "train", 10))
    assert len(noisy - usual) >= 120
    again = words_in([env.school("validation", number) for number in range(10)])
    assert len(again - usual) <= 20


@pytest.mark.parametrize("share", [0.2, 0.35])
def test_noise_is_the_share_of_the_handbooks_with_random_words(share: float) -> None:
    """In every split: an evaluation without it needs a configuration without it."""
    env, clean = make_env(noise=share, difficulty="easy"), env_of("easy")
    for split in ("train", "validation", "test"):
        schools = schools_of(env, split, 200)
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


# How it is put in.
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
