"""What episodes share: a world in several threads, and what an import brings along."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import searchrl_control
import searchrl_retrieval
from searchrl_control.comparison.sequences import list_sequences, play_sequences
from searchrl_control.environment import games as games_module
from searchrl_control.environment import positions as positions_module
from searchrl_control.environment.actions import SETS
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.worlds import Place, World

PACKAGES = [
    str(Path(str(package.__file__)).resolve().parents[1])
    for package in (searchrl_control, searchrl_retrieval)
]


def episode(settings: dict[str, Any], seed: int) -> list[Any]:
    env = RetrievalControlEnv(**settings)
    rng = Random(seed)
    shown, _ = env.reset(options={"split": "train", "index": seed % 3})
    told: list[Any] = []
    for _ in range(5):
        shown, reward, terminated, truncated, info = env.step(rng.randrange(len(env.actions)))
        told += [reward, info["query"], [passage.id for passage in info["passages"]]]
        told += [np.asarray(value).tolist() for value in shown.values()]
        if terminated or truncated:
            break
    return told


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
    assert RetrievalControlEnv(**toy, actions="wide").world is not one.world


def test_a_group_that_begins_at_once_computes_its_first_position_once(toy: dict[str, Any]) -> None:
    world = World(Place(**toy, actions="heads"))
    asker = world.asker(world.questions("train")[0])
    begin = threading.Barrier(8)

    def look(_: int) -> int:
        begin.wait()
        return id(world.positions.at(asker, ()))

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(look, range(8)))
    assert len(seen) == 1 and world.positions.num_cold == 1


def test_as_many_questions_stay_open_as_fit_into_the_memory(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    roomy = World(Place(**toy)).positions.max_questions
    monkeypatch.setattr(positions_module, "MAX_BYTES", 0)
    assert roomy > 1000 and World(Place(**toy)).positions.max_questions == 16


def test_memory_is_bounded_and_a_position_that_went_comes_back_the_same(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions_module, "MAX_POSITIONS", 2)
    world = World(Place(**toy, actions="heads"))
    world.positions.max_questions = 1
    askers = [world.asker(question) for question in world.questions("train")]
    first = world.positions.at(askers[0], (4,))
    for asker in askers:
        world.positions.at(asker, ())
    assert len(world.positions._positions) == 2 and len(world.positions._opened) == 1
    again = world.positions.at(askers[0], (4,))
    assert again is not first and again.places == first.places
    assert all(np.array_equal(again.blocks[name], first.blocks[name]) for name in first.blocks)


@pytest.mark.parametrize("limit", [1, 4])
def test_lists_of_a_question_that_went_are_searched_again_and_are_the_same(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """In `wide`, every list has arrays over the whole collection: all sequences of a question took
    60 MB on 5,000 passages, for each of 800 questions."""
    place = Place(**toy, actions="wide")
    sequences = list_sequences(World(place).positions.actions, 4)
    roomy = play_sequences(World(place), "train", sequences)
    monkeypatch.setattr(games_module, "MAX_LISTS", limit)
    world = World(place)
    assert play_sequences(world, "train", sequences) == roomy
    assert next(iter(roomy)) == "Search"  # of equal sequences, the first is chosen
    for opened in world.positions._opened.values():
        assert len(opened.game._states) <= limit  # type: ignore[attr-defined]


def test_sequences_that_begin_alike_share_their_searches(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Place(**toy, actions="wide"))
    sequences = list_sequences(world.positions.actions, 4)
    monkeypatch.setattr(games_module, "MAX_LISTS", 8)
    played: list[object] = []
    play = games_module.Lists.play
    monkeypatch.setattr(
        games_module.Lists, "play", lambda *given: played.append(given[3]) or play(*given)
    )
    play_sequences(world, "train", sequences)
    # Every sequence is one search more than the one it begins with.
    assert len(played) == len(world.questions("train")) * (len(sequences) - 1)


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("searchrl_control", {"torch", "scipy", "bm25s", "tokenizers", "searchrl.plugins"}),
        ("searchrl_control.environment.env", {"torch", "faiss", "sentence_transformers"}),
    ],
)
def test_what_an_import_brings_along(module: str, never: set[str]) -> None:
    program = (
        f"import sys; sys.path += {PACKAGES!r}; import {module}; "
        f"print(sorted({never!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
