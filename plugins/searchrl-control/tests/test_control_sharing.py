"""Shared parts of episodes, imports, and the criteria of each kind of part."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from control_toy import episode
from searchrl_control.comparison.sequences import list_sequences, play_sequences
from searchrl_control.environment import worlds
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import SETS, EnvSettings
from searchrl_retrieval.evaluation.collection import Judged

from searchrl.testing import Status, check_plugin

MODULE = "searchrl_control"


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Criteria and imports are checked in processes of their own, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.parametrize("actions", list(SETS))
def test_threads_play_the_same_episodes_as_one_alone(toy: dict[str, Any], actions: str) -> None:
    settings = {**toy, "actions": actions, "split_seed": 77}  # a world of its own, cold
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: episode(settings, seed), range(24)))
    alone = [episode({**settings, "split_seed": 78}, seed) for seed in range(24)]
    assert together == alone


def test_environments_of_one_place_share_their_world(toy: dict[str, Any]) -> None:
    one, other = (RetrievalControlEnv(**toy, step_cost=cost) for cost in (0.0, 0.1))
    assert one.world is other.world
    assert RetrievalControlEnv(**toy, actions="heads").world is not one.world


def test_memory_is_bounded_and_a_position_that_went_comes_back_the_same(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    per_question = 250 * 8 + 2**19
    room = worlds.World(EnvSettings(**toy)).open.cache_parameters()["maxsize"]
    assert room == 2**30 // per_question
    monkeypatch.setattr(worlds, "MAX_POSITIONS", 2)
    monkeypatch.setattr(worlds, "MAX_BYTES", 0)
    monkeypatch.setattr(worlds, "_LEAST_QUESTIONS", 1)
    world = worlds.World(EnvSettings(**toy, actions="heads"))
    asked = [Judged(f"q{n}", f"salt honey {n}", {}) for n in range(3)]
    first = world.at(asked[0], (4,))
    for one in asked:
        world.at(one, ())
    assert world.at.cache_info().currsize == 2 and world.open.cache_info().currsize == 1
    again = world.at(asked[0], (4,))
    assert again is not first and again.top == first.top
    assert all(np.array_equal(again.blocks[name], first.blocks[name]) for name in first.blocks)


@pytest.mark.parametrize("actions", list(SETS))
def test_sequences_that_begin_alike_share_their_searches(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch, actions: str
) -> None:
    world = worlds.World(EnvSettings(**toy, actions=actions))
    game = type(world.open(world.questions["train"][0]))
    sequences = list_sequences(world.actions, 4)
    played: list[object] = []
    play = game.play
    monkeypatch.setattr(game, "play", lambda *given: played.append(given[2]) or play(*given))
    play_sequences(world, "train", sequences)
    # Every sequence is one search more than the one it begins with, and illegal ones are none.
    assert 0 < len(played) <= len(world.questions["train"]) * (len(sequences) - 1)


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("searchrl_control", {"torch", "scipy", "bm25s", "tokenizers", "searchrl.plugins"}),
        ("searchrl_control.environment.env", {"torch", "faiss", "sentence_transformers"}),
    ],
)
def test_what_an_import_brings_along(module: str, never: set[str]) -> None:
    program = f"import sys, {module}; print(sorted({never!r} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


@pytest.mark.parametrize("actions", ["published", "heads"])
def test_the_environment(toy: dict[str, Any], actions: str) -> None:
    settings = {**toy, "actions": actions}
    (report,) = check_plugin("retrieval-control", kind="env", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped <= {"E16", "E17", "E18"}


def test_the_judged_component() -> None:
    (report,) = check_plugin("list_judge", kind="reward", plugins=[MODULE])
    assert report.is_good, report.failed
