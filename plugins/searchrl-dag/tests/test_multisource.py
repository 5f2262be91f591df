"""The environment `multisource`: its world, its questions, and what scripted policies reach."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import pytest
from searchrl_dag.multisource.env import NUM_TASKS, SEEN_WORDING
from searchrl_dag.multisource.heuristics import guess_task
from searchrl_dag.multisource.words import LINKS, NOUNS, PASSAGES, PERSON, PLACES, QUESTIONS, VALUES
from searchrl_dag.multisource.world import NUM_EXCEPTIONS, SOURCES, kind_of, make_table, make_world
from searchrl_dag.plans.plan import Node, Plan
from searchrl_dag.rewards import make_sources

import searchrl
from searchrl import ConfigError, RetrieverFailure, load_plugins
from searchrl.contracts import Passage
from searchrl.testing import make_episode

MODULE = "searchrl_dag"
SOME = 60
KINDS = (*PLACES, PERSON)


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


@pytest.mark.parametrize("split", list(NUM_TASKS))
def test_the_plan_of_every_task_answers_it(split: str) -> None:
    assert exact_match("expert", split) == 1.0


@pytest.mark.parametrize(
    ("script", "most"),
    [("passive", 0.2), ("random", 0.3), ("cue_plan", 0.55)],
)
def test_no_script_without_the_table_comes_near_the_one_with_it(script: str, most: float) -> None:
    assert exact_match(script, num_tasks=200) <= most


def test_the_table_has_63_entries_with_exceptions_and_is_another_one_in_every_world() -> None:
    for seed in range(20):
        table = make_table(seed)
        by_noun = [[table[noun, kind] for kind in KINDS if (noun, kind) in table] for noun in NOUNS]
        assert len(table) == 63 and {*map(len, by_noun)} == {6, 5}
        assert sum(len({*sources}) > 1 for sources in by_noun) == NUM_EXCEPTIONS
        same = sum(table[key] == source for key, source in make_table(seed + 1).items())
        assert same <= 42
    right = make_world(7, "test").right
    table = make_table(7)
    assert {table[noun, kind_of(entity)] == f.source for (entity, noun), f in right.items()} == {
        True
    }


def test_in_a_joint_table_neither_noun_nor_role_alone_tells_the_source_of_a_second_query() -> None:
    assert exact_match("expert", joint_table=True) == 1.0
    world, sources = make_world(25, "train", True), defaultdict(set)
    for place, link, noun in product(world.places, LINKS, VALUES):
        person = world.right[place, link].value
        for key in (noun, link, (noun, link)):
            sources[key].add(world.right[person, noun].source)
    assert {len(sources[key]) for key in (*VALUES, *LINKS)} == {3}
    assert {len(sources[key]) for key in product(VALUES, LINKS)} == {1}


def test_no_word_tells_a_source_and_most_facts_stand_in_two_of_them() -> None:
    """A word is as often in the passages of one source as in those of another."""
    world = make_world(0, "train")
    said = [(e, n) for _, e, n in world.facts]
    assert {said.count(one) for one in said[:200]} == {1, 2}
    assert 0.85 <= (len(said) - len(world.right)) / len(world.right) <= 0.95
    for (entity, noun), right in world.right.items():
        told = {f.value for s in SOURCES if (f := world.facts.get((s, entity, noun)))}
        assert right.value in told
        assert right.text.replace(right.value, "") in {
            one.format(n=noun, e=entity, v="") for one in PASSAGES.seen
        }


def test_one_word_decides_the_shape_of_a_plan() -> None:
    env = make()
    sizes = {"lookup": 1, "bridge": 2, "compare": 2, "filter": 4, "count": 3}
    for index in range(SOME):
        task = env.make_task("test", index)
        assert len(task.meta["nodes"]) == sizes[task.kind]
        assert task.meta["edges"] == ([["A", "B"]] if task.kind == "bridge" else [])
        kind, asked, _ = guess_task(task.question)
        assert (kind, asked) == (task.kind, task.meta["asked"])


def test_a_second_query_that_needs_the_first_result_fails_without_it() -> None:
    assert exact_match("expert", mix={"bridge": 1.0}) == 1.0
    assert exact_match("expert", mix={"bridge": 1.0}, parent_results=False) <= 0.2


def test_names_of_a_split_are_in_no_other_but_each_of_their_words_is_in_training() -> None:
    worlds = {split: make_world(0, split) for split in NUM_TASKS}
    names = {split: {*one.entities} for split, one in worlds.items()}
    assert len(set.union(*names.values())) == sum(map(len, names.values()))
    known = {word for name in names["train"] for word in name.split()}
    assert {word for name in names["test"] for word in name.split()} <= known


def test_half_of_the_wordings_of_tests_are_held_out() -> None:
    env = make()
    begun = tuple(wording.partition("{p}")[0] for wording in QUESTIONS.held_out)
    questions = [env.make_task("train", index).question for index in range(200)]
    assert not [question for question in questions if question.startswith(begun)]
    tests = [env.make_task("test", index) for index in range(200)]
    num_held_out = sum(task.question.startswith(begun) for task in tests)
    assert 70 <= num_held_out <= 130
    assert all(SEEN_WORDING not in t.slices for t in tests if t.question.startswith(begun))
    assert not {*PASSAGES.seen} & {*PASSAGES.held_out}


def test_the_share_of_right_sources_is_that_of_the_queries_planned() -> None:
    env = make()
    index = next(n for n in range(SOME) if env.kind_of("test", n) == "compare")
    task = env.make_task("test", index)
    nodes = [Node(*one) for one in task.meta["nodes"]]
    wrong = next(one for one in SOURCES if one != nodes[0].source)
    for plan, share in (
        (nodes, 1.0),
        ([nodes[0], nodes[1]._replace(source=wrong)], 0.5),
        ([*nodes, nodes[0]._replace(label="C", source=wrong), Node("D", "more", wrong)], 0.5),
    ):
        turns = [env.protocol.render_plan(Plan(tuple(plan)))]
        assert make_sources()(make_episode(task, turns, env.protocol)) == share


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mix": {"brigde": 1}}, "env.mix has no kind 'brigde'. Did you mean 'bridge'"),
        ({"mix": {"bridge": -1}}, "the weight of 'bridge' must be ≥ 0"),
        ({"mix": {"bridge": 0}}, "a positive, finite total"),
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
