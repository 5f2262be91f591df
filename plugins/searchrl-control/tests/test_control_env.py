"""The environment `retrieval-control` as Gymnasium sees it, and faults of the published agent."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest
from control_toy import PASSAGES, QUESTIONS, episode, write_beir, write_toy
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.measures import ndcg
from searchrl_control.environment.settings import SETS

from searchrl import ConfigError, load_plugins

ID = "searchrl_control:searchrl/RetrievalControl-v0"

every_set = pytest.mark.parametrize("actions", list(SETS))


def make(toy: dict[str, Any], **settings: Any) -> RetrievalControlEnv:
    return RetrievalControlEnv(**{**toy, **settings})


def do(env: RetrievalControlEnv, *names: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Do actions by name; the sum of the rewards, and the rest of the last step."""
    total = 0.0
    for name in names:
        step = env.step(env.action_names.index(name))
        total += step[1]
    return step[0], total, *step[2:]


@every_set
def test_the_checker_of_gymnasium_finds_nothing(toy: dict[str, Any], actions: str) -> None:
    load_plugins(["searchrl_control"])  # makes ids of all environments of plugins, in words
    env = gymnasium.make(ID, actions=actions, **toy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


@every_set
def test_first_action_is_search_and_all_are_told_by_the_mask(
    toy: dict[str, Any], actions: str
) -> None:
    env = make(toy, actions=actions)
    _, info = env.reset(options={"split": "train", "index": 0})
    assert info["action_mask"].tolist() == [1] + [0] * (len(env.actions) - 1)
    info = do(env, "Search")[-1]
    expected = {
        "published": [1, 1, 1, 1],
        "heads": [0, 1, 1, 1, 1, 1, 1, 1, 0],  # nothing to hop from
    }
    assert info["action_mask"].tolist() == expected[actions]
    assert do(env, "Broad")[-1]["action_mask"][-1] == 1


@pytest.mark.parametrize("first", [1, 2, 3, -1, 99])
def test_an_illegal_action_ends_nothing_becomes_search_and_is_told(
    toy: dict[str, Any], first: int
) -> None:
    env, plain = make(toy), make(toy)
    for one in (env, plain):
        one.reset(options={"split": "train", "index": 1})
    shown, reward, terminated, truncated, info = env.step(first)
    expected = plain.step(0)
    assert not terminated and not truncated and info["illegal"]
    assert info["action"].payload == "Search" and "illegal" in info["action"].reason
    assert info["signals"]["illegal"] == 1 and reward == expected[1]
    assert info["passages"] == expected[4]["passages"] and not expected[4]["illegal"]
    assert all(np.array_equal(shown[name], expected[0][name]) for name in shown)


def test_terminate_ends_with_the_list_that_is_there(toy: dict[str, Any]) -> None:
    env = make(toy)
    env.reset(options={"split": "train", "index": 0})
    before = do(env, "Search", "Broad")[-1]["passages"]
    _, _, terminated, truncated, info = do(env, "Terminate")
    assert terminated and not truncated and info["passages"] == before
    with pytest.raises(ResetNeeded, match="outside an episode"):
        env.step(0)
    env.reset(options={"split": "train", "index": 0})
    assert not do(env, "Search", "Broad", "Narrow", "Broad")[2]
    assert do(env, "Narrow")[2:4] == (True, False)  # the fifth step is the last


@pytest.mark.parametrize("more", [("Terminate",), ("Broad", "Broad", "Broad")])  # or the limit
def test_reward_is_ndcg_at_the_end_minus_the_steps(toy: dict[str, Any], more: Any) -> None:
    env = make(toy, step_cost=0.01)
    env.reset(options={"split": "train", "index": 1})
    _, total, is_over, _, info = do(env, "Search", "Broad", *more)
    qrels = env.world.questions["train"][1].qrels
    worth = ndcg([passage.id for passage in info["passages"]], qrels)
    assert is_over and worth > 0 and info["signals"]["ndcg"] == worth
    assert total == pytest.approx(worth - (0.02 if len(more) == 1 else 0.05))


@every_set
def test_gains_add_up_to_the_reward_at_the_end(toy: dict[str, Any], actions: str) -> None:
    sums = []
    for reward in ("ndcg", "gain"):
        env = make(toy, actions=actions, reward=reward)
        env.reset(options={"split": "train", "index": 1})
        sums.append(do(env, "Search", "Broad", "Narrow", "Terminate")[1])
    assert sums[0] == pytest.approx(sums[1])


def test_who_changes_an_observation_changes_no_other_episode(toy: dict[str, Any]) -> None:
    env = make(toy)
    seen = []
    for _ in range(2):
        env.reset(options={"split": "train", "index": 0})
        shown = env.step(0)[0]
        seen.append({name: np.copy(value) for name, value in shown.items()})
        for value in shown.values():
            if isinstance(value, np.ndarray) and value.ndim:
                value[:] = 9
    assert all(np.array_equal(seen[0][name], seen[1][name]) for name in seen[0])


def test_tasks_are_numbered_and_say_what_they_are(toy: dict[str, Any]) -> None:
    env = make(toy)
    assert [env.num_tasks(split) for split in env.splits] == [2, 1, 3]
    task = env.make_task("test", 0)
    assert task.id == "retrieval-control-toy-test-q-sand" and task.gold_ids == ("glass", "lost")
    assert task.difficulty == "medium" and task.kind == "toy"
    with pytest.raises(ConfigError, match="tasks 0 to 2"):
        env.make_task("test", 3)
    with pytest.raises(ConfigError, match="no split 'tset'"):
        env.reset(options={"split": "tset"})


def test_difficulty_chooses_what_is_trained_on_and_nothing_that_is_held_out(
    toy: dict[str, Any], tmp_path: Path
) -> None:
    """Held-out tasks of the last stage were played several times each: .26 where nDCG was .43."""
    splits = {"train": ["q-none", "q-sand", "q-fish"], "test": ["q-salt", "q-quill", "q-hive"]}
    folder = str(write_toy(tmp_path / "toy", splits))
    for level, trained in {"any": ["q-none", "q-sand"], "hard": ["q-none"]}.items():
        env = make(toy, collection=folder, difficulty=level)
        for split, asked in {**splits, "train": trained, "validation": ["q-fish"]}.items():
            tasks = [env.make_task(split, number) for number in range(env.num_tasks(split))]
            assert [task.meta["question"] for task in tasks] == asked
    with pytest.raises(ConfigError, match="no question of this collection is easy"):
        make(toy, collection=folder, difficulty="easy").num_tasks("train")


@pytest.mark.parametrize(
    ("search", "action", "level"),
    [("bm25s", "Words", "hard"), ("dense", "Dense", "easy"), ("hybrid", "Fuse", "easy")],
)
def test_search_and_difficulty_are_by_the_retriever_of_the_setting(
    toy: dict[str, Any], search: str, action: str, level: str
) -> None:
    """The question `zebra quagga` has no word of its passage; by vectors all eight are found."""
    env, lists = make(toy, actions="heads", search=search), []
    for names in (("Search",), ("Search", action)):
        env.reset(options={"split": "test", "index": 0})
        lists.append([passage.id for passage in do(env, *names)[-1]["passages"]])
    assert lists[0] == lists[1] and lists[0]
    assert env.make_task("test", 1).difficulty == level
    published = make(toy, search=search)
    published.reset(options={"split": "test", "index": 0})
    assert [one.id for one in do(published, "Search")[-1]["passages"]] == lists[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"actions": "wide"}, "actions = 'wide'.*'published' or 'heads'"),
        ({"reward": "ndgc"}, "'ndcg' or 'gain'"),
        ({"difficulty": "hardest"}, "difficulty = 'hardest'.*'mostly_hard'"),
        ({"max_steps": 0}, "max_steps = 0"),
        ({"collecton": "x"}, "Did you mean 'collection'"),
        ({"url": "http://x/v1"}, "env.url.* and env.endpoint_model go together"),
        ({"encoder": "statics"}, "'static' or 'dense'"),
    ],
)
def test_a_wrong_setting_says_what_is_right(
    toy: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make(toy, **settings)


def test_an_episode_is_shown_in_words(toy: dict[str, Any]) -> None:
    env = make(toy, render_mode="ansi")
    assert env.render() is None
    env.reset(options={"split": "train", "index": 0})
    begun = ["Question: where does salt come from", "Actions left: 5.", "Searched: nothing yet"]
    assert str(env.render()).splitlines() == begun
    do(env, "Search")
    shown = str(env.render()).splitlines()
    assert shown[1:3] == ["Actions left: 4.", "Searched: where does salt come from"]
    assert shown[3] == "1. Salt. Salt comes from the sea. Salt keeps fish. Salt is old."


def test_an_action_that_was_repeated_is_shown_as_often_as_it_was_taken(toy: dict[str, Any]) -> None:
    env = make(toy)
    env.reset(options={"split": "train", "index": 0})
    shown = do(env, "Search", "Broad", "Broad", "Narrow")[0]
    assert shown["taken"].tolist() == pytest.approx([0.0, 1 / 5, 2 / 5, 0.0])


@every_set
def test_renaming_the_documents_changes_nothing(
    toy: dict[str, Any], tmp_path: Path, actions: str
) -> None:
    names = [passage.id for passage in PASSAGES]
    new = dict(zip(names, Random(3).sample(names, len(names)), strict=True))
    renamed = [replace(passage, id=new[passage.id]) for passage in PASSAGES]
    texts = {name: text for name, (text, _) in QUESTIONS.items()}
    judged = [
        (name, {new.get(one, one): grade for one, grade in qrels.items()})
        for name, (_, qrels) in QUESTIONS.items()
    ]
    splits = {"train": judged[:3], "test": judged[3:]}
    folder = str(write_beir(tmp_path / "toy", renamed, texts, splits))
    for seed in range(12):
        told = [episode({**toy, "actions": actions, **more}, seed)
                for more in ({}, {"collection": folder})]  # fmt: skip
        assert told[0] == told[1]
