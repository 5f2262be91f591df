"""Drills of `regulations`: tasks of random words that only a cold start asks for."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from playing import make_env, mean, play, search

from searchrl.envs.regulations import make_expert
from searchrl.envs.regulations.questions import DRILL

pytestmark = pytest.mark.thorough

ONLY = {"mix": {DRILL: 1.0}}


def test_drills_depend_on_nothing_but_split_index_and_world_seed() -> None:
    env = make_env(**ONLY)
    backwards = [make_env(**ONLY).make_task("train", i) for i in reversed(range(20))]
    tasks = [env.make_task("train", i) for i in range(20)]
    assert tasks == backwards[::-1] and {task.kind for task in tasks} == {DRILL}
    assert tasks[0] != make_env(world_seed=1, **ONLY).make_task("train", 0)
    assert tasks[0].question != env.make_task("test", 0).question


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


def test_some_silent_drills_show_nothing_like_the_question_and_a_few_nothing_at_all() -> None:
    """Of the silent ones half have lost the articles that share words with the question, too."""
    env = make_env(**ONLY)
    silent = [t for t in (env.make_task("train", i) for i in range(400)) if not t.gold_ids]
    counts = Counter(len(env.passages(task)[1]) for task in silent)
    assert set(counts) == {3, 5}
    assert 0.35 <= counts[3] / len(silent) <= 0.65
    found = {task.index: search(env, task, task.meta["queries"]) for task in silent}
    empty = [task for task in silent if not found[task.index]]
    assert 0.05 <= len(empty) / len(silent) <= 0.2
    for task in empty:
        assert len(env.passages(task)[1]) == 3
        game = play(env, make_expert, split="train", index=task.index)
        assert game.actions[-1].payload == "not regulated" and game.reward == 1.0
        assert not game.passages and len(game.actions) == 2
    # Where something is found, it is read: the name that was asked for is nowhere.
    for task in silent:
        name = task.meta["gists"][0].partition(" of ")[2]
        assert name in task.question
        assert not [p for p in env.passages(task)[1] if re.search(rf"\b{name}\b", p.text)], task
