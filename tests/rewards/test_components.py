"""The built-in components on small episodes, each definition at its edges."""

from dataclasses import replace
from typing import Any

import pytest

from searchrl.core.episode import (
    ANSWER,
    INVALID,
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    Passage,
    Score,
    Task,
    Unscored,
)
from searchrl.rewards.components import BUILTIN_REWARDS


def search(query: str, *ids: str) -> EpisodeTurn:
    passages = tuple(Passage(i, f"text {i}") for i in ids)
    return EpisodeTurn(f"<search>{query}</search>", Action(SEARCH, (query,)), passages)


def answer(text: str) -> EpisodeTurn:
    return EpisodeTurn(f"<answer>{text}</answer>", Action(ANSWER, text))


TASK = Task("t1", "test", 0, "Where?", answers=("Paris",), gold_ids=("g1", "g2"))


def score(name: str, episode: Episode) -> float | Score | Unscored:
    return BUILTIN_REWARDS[name]()(episode)


@pytest.mark.parametrize("name", BUILTIN_REWARDS)
def test_every_component_bears_its_registered_name_and_lists_its_values_in_order(name: str) -> None:
    component = BUILTIN_REWARDS[name]()
    assert component.name == name and component.values == tuple(sorted(component.values))


def test_each_component_is_one_of_its_own() -> None:
    first, second = (BUILTIN_REWARDS["em"]() for _ in range(2))
    first.values = (0.0,)
    assert second.values == BUILTIN_REWARDS["em"]().values == (0.0, 1.0)


@pytest.mark.parametrize("verdict", [0.0, 0.5, 1.0])
def test_format_is_the_protocols_verdict_and_nothing_else(verdict: float) -> None:
    assert score("format", Episode(TASK, format_score=verdict)) == verdict


@pytest.mark.parametrize("name", ["em", "cover_em", "f1", "fuzzy"])
def test_answer_scores_of_a_task_without_gold_are_unscored_and_not_a_constant_zero(name: str):
    result = score(name, Episode(Task("t9", "test", 9, "Play!"), (), "Paris"))
    assert isinstance(result, Unscored) and "'t9' has no gold answers" in result.reason


def test_searches_counts_search_turns_and_searched_says_whether_any() -> None:
    invalid = EpisodeTurn("?", Action(INVALID, reason="no tag"))
    two_queries = EpisodeTurn("", Action(SEARCH, ("a", "b")))
    episode = Episode(TASK, (search("q"), invalid, two_queries, answer("Paris")), "Paris")
    assert score("searches", episode) == 2.0 and score("searched", episode) == 1.0
    passive = Episode(TASK, (answer("Paris"),), "Paris")
    assert score("searches", passive) == score("searched", passive) == 0.0


def test_support_recall_is_the_share_of_gold_passages_and_all_gold_whether_it_is_all() -> None:
    """`retrieved` was documented as all of them, and was a mean of 0, 0.5 and 1."""

    def of(*turns: EpisodeTurn) -> tuple[Any, Any]:
        task = Task("t1", "test", 0, "Where?", answers=("Paris",), gold_ids=("g1", "g2", "g3"))
        episode = Episode(task, turns)
        return score("support_recall", episode), score("all_gold", episode)

    assert of(search("q", "g1", "x"), search("r", "g2", "g3")) == (1.0, 1.0)
    assert of(search("q", "g1", "g1")) == (pytest.approx(1 / 3), 0.0)
    assert of(search("q", "g1", "g2")) == (pytest.approx(2 / 3), 0.0)
    twice = replace(TASK, gold_ids=("g1", "g2", "g2"))  # named twice, it is one passage
    assert score("support_recall", Episode(twice, (search("q", "g1", "g2"),))) == 1.0
    assert of(search("q", "x")) == of() == (0.0, 0.0)


@pytest.mark.parametrize("name", ["support_recall", "all_gold"])
def test_evidence_says_nothing_without_gold_passages(name: str) -> None:
    task = Task("t2", "test", 1, "May I?", answers=("not regulated",))
    assert isinstance(score(name, Episode(task, (search("q"),))), Unscored)
    applies = BUILTIN_REWARDS[name]().applies  # type: ignore[attr-defined]
    assert applies(TASK) and not applies(task)


def test_success_is_what_the_last_turn_earns_and_not_what_others_cost() -> None:
    invalid, move = (EpisodeTurn("", Action(INVALID), reward=reward) for reward in (-1.0, 0.0))
    won = Episode(TASK, (invalid, move, replace(move, reward=1.0)), env_return=0.0)
    assert score("success", won) == 1.0
    assert score("success", replace(won, turns=won.turns[::-1])) == 0.0
    assert score("success", Episode(TASK)) == 0.0


def test_env_is_the_sum_the_environment_reported() -> None:
    assert score("env", Episode(TASK, env_return=-2.5)) == -2.5
