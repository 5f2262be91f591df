"""The world `credit`: one turn decides, and nothing that is shown says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from searchrl_credit.world import REGISTERS, Clerk, make_habit

import searchrl
from searchrl.contracts import Episode
from searchrl.protocols import ThinkSearchAnswer
from searchrl.rewards import em
from searchrl.testing import assert_conforms, play_episode

PROTOCOL = ThinkSearchAnswer()


def play(make: Any, index: int, world_seed: int = 0) -> Episode:
    env: Any = searchrl.make_env("credit", protocol=PROTOCOL, world_seed=world_seed)
    _, info = env.reset(options={"split": "test", "index": index})
    return play_episode(env, make(env, info["task"], PROTOCOL), PROTOCOL, split="test", index=index)


def test_it_conforms() -> None:
    assert_conforms("env:credit")


@pytest.mark.parametrize(("make", "least", "most"), [(Clerk, 1, 1), (make_habit, 0.1, 0.4)])
def test_only_the_register_decides(make: Any, least: float, most: float) -> None:
    episodes = [play(make, index) for index in range(40)]
    right = [em(one.final_answer, one.task.answers) for one in episodes]
    assert least <= sum(right) / 40 <= most
    assert {len(one.turns) for one in episodes} == {5}


def test_a_wrong_register_leads_on_as_the_right_one_does() -> None:
    episodes = [play(partial(Clerk, register=one), 0) for one in REGISTERS]
    sizes = {tuple(len(turn.observation.split()) for turn in one.turns) for one in episodes}
    assert len(sizes) == 1 and len({one.final_answer for one in episodes}) == len(REGISTERS)
    assert sum(em(one.final_answer, one.task.answers) for one in episodes) == 1


def test_another_world_has_another_table_for_the_same_questions() -> None:
    tasks = [[play(Clerk, n, world_seed=seed).task for n in range(9)] for seed in (0, 1)]
    assert [one.gold_ids for one in tasks[0]] != [one.gold_ids for one in tasks[1]]
