"""The policies of `regulations` that match words: honest, and each better than the simpler one."""

from __future__ import annotations

from typing import Any

import pytest
from playing import PROTOCOL, Played, make_env, mean, play

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, Passage, Task
from searchrl.envs.regulations import (
    RegulationsEnv,
    make_one_search,
    make_question_as_query,
    make_two_search_regex,
)

pytestmark = pytest.mark.thorough

POLICIES = {
    "question_as_query": make_question_as_query,
    "one_search": make_one_search,
    "two_search_regex": make_two_search_regex,
}
NUM_TASKS = 96


@pytest.fixture(scope="module")
def env() -> RegulationsEnv:
    return make_env()


@pytest.fixture(scope="module")
def games(env: RegulationsEnv) -> dict[str, list[Played]]:
    return {
        name: [play(env, policy, split="test", index=index) for index in range(NUM_TASKS)]
        for name, policy in POLICIES.items()
    }


def read(question: str, *articles: tuple[str, str], then: tuple[tuple[str, str], ...] = ()) -> str:
    """What `two_search_regex` answers if its searches show `articles`, and `then` those."""
    policy = make_two_search_regex(None, Task("t", "test", 0, question), PROTOCOL)
    policy.act(f"{question}\nAnswer from the handbook of Elm School; if it does not say, answer: x")
    for shown in (articles, then or articles):
        passages = [Passage(str(i), text, title) for i, (title, text) in enumerate(shown)]
        action = PROTOCOL.parse(policy.act(PROTOCOL.render_observation(passages)))
        if action.kind == ANSWER:
            return str(action.payload)
    raise AssertionError("no answer after two searches")


# Honest.
@pytest.mark.parametrize("name", POLICIES)
def test_policy_needs_neither_the_environment_nor_what_only_it_knows(
    env: RegulationsEnv, games: dict[str, list[Played]], name: str
) -> None:
    def blind(env: Any, task: Task, protocol: TagProtocol) -> Expert:
        return POLICIES[name](None, Task("", "", -1, task.question), protocol)

    for index in range(60):
        assert play(env, blind, split="test", index=index).turns == games[name][index].turns


# As strong as said.
def test_each_is_better_than_the_simpler_one(games: dict[str, list[Played]]) -> None:
    em = {name: mean(game.reward for game in played) for name, played in games.items()}
    assert em["question_as_query"] < em["one_search"] < em["two_search_regex"]
    assert em["one_search"] >= 0.45 and em["two_search_regex"] >= 0.60, em


# How it reads.
FINE = ("Overdue books", "Whoever brings a book back late is fined £14")


@pytest.mark.parametrize(
    "text",
    [
        f"{FINE[1]}, but in the holidays it is £20. For new pupils it is £9.",
        f"In the holidays it is £20, but as a rule {FINE[1]}; for new pupils it is £9.",
        f"For new pupils it is £9. Otherwise {FINE[1]}, although during the holidays it is £20.",
        f"{FINE[1]}. There is one exception: for new pupils it is £9. In the holidays it is £20.",
    ],
)
def test_exception_counts_only_if_it_is_named(text: str) -> None:
    article = (FINE[0], text)
    assert read("How much is the fine for a late book?", article) == "£14"
    assert read("For new pupils, how much is the fine for a late book?", article) == "£9"
    assert read("What is a late book's fine during the holidays?", article) == "£20"


def test_value_has_the_shape_and_the_unit_that_are_asked_for() -> None:
    text = (
        "Books may be kept for 21 days by each of our 640 readers. The desk in room B214 is open "
        "until 16:35, and Mara Oakley lends books there from 4 May. Ask on extension 4173."
    )
    for question, answer in {
        "For how many days may a library book be kept?": "21",
        "How long can I keep a book?": "21",
        "In which room is the library desk?": "B214",
        "Until when is the library desk open?": "16:35",
        "Who lends books at the library?": "Mara Oakley",
        "On which date does the library lend books?": "4 May",
        "On which extension can I ask about books?": "4173",
        "What does a library book cost?": "not regulated",
    }.items():
        assert read(question, ("Library", text)) == answer, question
