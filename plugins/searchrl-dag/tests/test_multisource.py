"""The environment `multisource`: its world, its questions, and what scripted policies reach."""

from __future__ import annotations

from typing import Any

import pytest
from searchrl_dag.multisource import words
from searchrl_dag.multisource.env import NUM_TASKS, SEEN_WORDING
from searchrl_dag.multisource.heuristics import guess_plan
from searchrl_dag.multisource.world import SOURCES, make_world

import searchrl
from searchrl import ConfigError, RetrieverFailure, load_plugins
from searchrl.contracts import Passage

MODULE = "searchrl_dag"
SOME = 60


def make(**settings: Any) -> Any:
    """A new instance without its wrappers."""
    return searchrl.make_env("multisource", plugins=[MODULE], **settings).unwrapped


def exact_match(script: str, split: str = "test", num_tasks: int = SOME, **settings: Any) -> float:
    """The share of tasks that a scripted policy solves."""
    env = make(**settings)
    act = load_plugins([MODULE]).get("env", "multisource").load_script(script)
    total = 0.0
    for index in range(num_tasks):
        observation, info = env.reset(options={"split": split, "index": index})
        policy = act(env, info["task"], env.protocol)
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total += float(reward)
            is_over = terminated or truncated
    return total / num_tasks


WEAK = ("passive", "clumsy", "one_general", "every_source", "general_plan")


@pytest.mark.parametrize("split", list(NUM_TASKS))
def test_the_plan_of_every_task_answers_it(split: str) -> None:
    assert exact_match("expert", split) == 1.0


@pytest.mark.parametrize("script", WEAK)
def test_weak_policies_and_heuristics_stay_far_below_a_plan(script: str) -> None:
    assert exact_match(script) <= 0.25


def test_the_best_heuristic_has_the_right_plan_but_for_the_sources() -> None:
    env = make()
    for index in range(SOME):
        task = env.make_task("test", index)
        plan = guess_plan(task.question)
        assert plan is not None
        assert list(plan.queries) == [query for _, query, _ in task.meta["nodes"]]
        assert [list(edge) for edge in plan.edges] == task.meta["edges"]


def test_a_second_query_that_needs_the_first_result_fails_without_it() -> None:
    assert exact_match("expert", mix={"chain": 1.0}) >= 0.6
    assert exact_match("expert", mix={"chain": 1.0}, parent_results=False) <= 0.2


def test_an_answer_is_in_one_source_alone() -> None:
    env = make()
    for index in range(SOME):
        task = env.make_task("test", index)
        world = env.world("test")
        for identity, value in zip(task.gold_ids, task.meta["values"], strict=True):
            source, entity, noun = identity.split("/")
            said = {one: world.facts[one, entity, noun].value for one in SOURCES}
            assert said[source] == value and len({*said.values()}) == 3


def test_names_of_a_split_are_in_no_other_but_each_of_their_words_is_in_training() -> None:
    worlds = {split: make_world(0, split) for split in NUM_TASKS}
    names = {split: {*one.towns, *one.people} for split, one in worlds.items()}
    assert len(set.union(*names.values())) == sum(map(len, names.values()))
    known = {word for name in names["train"] for word in name.split()}
    assert {word for name in names["test"] for word in name.split()} <= known


def test_half_of_the_wordings_of_tests_are_held_out() -> None:
    env = make()
    begun = tuple(wording.partition("{p}")[0] for wording in words.QUESTIONS.held_out)
    questions = [env.make_task("train", index).question for index in range(200)]
    assert not [question for question in questions if question.startswith(begun)]
    tests = [env.make_task("test", index) for index in range(200)]
    num_held_out = sum(task.question.startswith(begun) for task in tests)
    assert 70 <= num_held_out <= 130
    assert all(SEEN_WORDING not in t.slices for t in tests if t.question.startswith(begun))
    seen = {text for wordings in words.PASSAGES.values() for text in wordings.seen}
    assert not seen & {text for wordings in words.PASSAGES.values() for text in wordings.held_out}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mix": {"chian": 1}}, "env.mix has no kind 'chian'. Did you mean 'chain'"),
        ({"mix": {"chain": -1}}, "the weight of 'chain' must be ≥ 0"),
        ({"mix": {"chain": 0}}, "a positive, finite total"),
        ({"protocol": "think-search-answer"}, "needs plans, and the protocol think-search-answer"),
        (
            {"protocol": {"name": "dag", "sources": ["General", "Web"]}},
            "protocol.sources names 'web'",
        ),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(**settings)


class Failing:
    """A retriever that fails."""

    def __init__(self, passages: object) -> None:
        pass

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        raise OSError("the line is dead")


def test_the_indexes_of_all_sources_are_built_before_any_episode() -> None:
    """A slow one would miss the time limit of a search."""
    made: list[int] = []

    def slow(passages: Any) -> Failing:
        made.append(len(passages))
        return Failing(passages)

    env = make(retriever=slow)
    env.build_indexes()
    corpora = [own for split in NUM_TASKS for own in env.world(split).corpora.values()]
    assert made == [len(own) for own in corpora]
    env.reset(options={"split": "test", "index": 0})
    with pytest.raises(RetrieverFailure):
        env.step("<search>Nodes:\nA: crop (News)</search>")
    assert len(made) == len(corpora)


def test_a_source_has_a_retriever_of_its_own_and_its_failure_names_it() -> None:
    env = make(news=Failing, protocol={"name": "dag", "sources": ["General", "News"]})
    env.reset(options={"split": "test", "index": 0})
    with pytest.raises(RetrieverFailure, match="source news raised OSError: the line is dead"):
        env.step("<search>Nodes:\nA: crop (General)\nB: crop (News)</search>")
    env.reset(options={"split": "test", "index": 0})
    observation, *_ = env.step("<search>Nodes:\nA: crop (General)</search>")
    assert "crop" in observation
    env.reset(options={"split": "test", "index": 0})
    observation, *_ = env.step("<search>Nodes:\nA: mayor (Academic)</search>")
    assert "unknown source; there are General and News" in observation
