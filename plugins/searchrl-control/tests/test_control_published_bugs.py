"""One test for every fault of the published agent, named for it: those that are no core's.

The masked update, the ratio and the gradients of the policy network are tested where they are.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from control_toy import PASSAGES, QUESTIONS, write_beir
from searchrl_control.environment.actions import SETS, Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.training.loop import estimate

# Two episodes, of two steps and of three. With a decay of .5, half of what is later counts.
REWARDS = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 4.0]])
VALUES = torch.tensor([[2.0, 4.0, 99.0], [8.0, 2.0, 6.0]])
IS_DONE = torch.tensor([[True, True, False], [True, True, True]])


def test_done_is_not_shifted_by_one_step_in_the_advantages() -> None:
    """The hand table, from the back, one episode after the other:

    | t | r | V | V after | delta                  | advantage                |
    | 4 | 4 | 6 | 0       | 4 + 0 - 6 = -2         | -2                       |
    | 3 | 1 | 2 | 6       | 1 + 6 - 2 = 5          | 5 + .5 * -2 = 4          |
    | 2 | 0 | 8 | 2       | 0 + 2 - 8 = -6         | -6 + .5 * 4 = -4         |
    | 1 | 2 | 4 | 0       | 2 + 0 - 4 = -2         | -2                       |
    | 0 | 1 | 2 | 4       | 1 + 4 - 2 = 3          | 3 + .5 * -2 = 2          |
    """
    told = estimate(REWARDS, VALUES, IS_DONE, decay=0.5)
    assert told.tolist() == [[2.0, -2.0, 0.0], [-4.0, 4.0, -2.0]]


def test_advantages_without_decay_are_returns_minus_values() -> None:
    told = estimate(REWARDS, VALUES, IS_DONE, decay=1.0)
    assert (told + VALUES)[IS_DONE].tolist() == [3.0, 2.0, 5.0, 5.0, 4.0]


@pytest.mark.parametrize("actions", list(SETS))
def test_a_policy_that_always_terminates_is_the_single_pass_and_not_zero(
    toy: dict[str, Any], actions: str
) -> None:
    env = RetrievalControlEnv(**toy, actions=actions)
    end = env.actions.index(Action.TERMINATE)
    for index in range(2):
        worth = []
        for first in (0, end):
            _, info = env.reset(options={"split": "train", "index": index})
            assert not info["action_mask"][end]
            _, _, terminated, *_ = env.step(first)
            assert not terminated
            _, _, terminated, _, info = env.step(end)
            assert terminated
            worth.append(info["signals"]["ndcg"])
        assert worth[0] == worth[1] > 0


def test_an_episode_neither_reads_nor_seeds_the_global_random_numbers(toy: dict[str, Any]) -> None:
    seen = []
    for seed in (1, 2):
        np.random.seed(seed)
        before = np.random.get_state()[1].copy()  # type: ignore[index]
        env = RetrievalControlEnv(**toy)
        _, info = env.reset(seed=5)
        tasks = [info["task"].id] + [env.reset()[1]["task"].id for _ in range(8)]
        env.step(0)
        assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]
        seen.append(tasks)
    assert seen[0] == seen[1] and len(set(seen[0])) > 1


def test_embeddings_are_arrays_that_nothing_can_train(toy: dict[str, Any]) -> None:
    env = RetrievalControlEnv(**toy)
    vectors = env.world.library.vectors.vectors_ND
    before = vectors.copy()
    shown, _ = env.reset(seed=0)
    shown, *_ = env.step(0)
    weight = torch.nn.Parameter(torch.ones(len(shown["query"])))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    seen = torch.from_numpy(shown["query"])
    assert not seen.requires_grad
    (seen * weight).sum().backward()
    optimiser.step()
    seen.mul_(0)  # even an update in place
    assert np.array_equal(env.world.library.vectors.vectors_ND, before)
    assert np.any(env.reset(seed=0)[0]["query"])


@pytest.mark.parametrize("actions", list(SETS))
def test_renaming_the_documents_changes_nothing(
    toy: dict[str, Any], tmp_path: Path, actions: str
) -> None:
    names = [passage.id for passage in PASSAGES]
    new = dict(zip(names, Random(3).sample(names, len(names)), strict=True))
    assert sum(new[name] != name for name in names) > 4
    renamed = [replace(passage, id=new[passage.id]) for passage in PASSAGES]
    questions = {
        name: (text, {new.get(one, one): grade for one, grade in qrels.items()})
        for name, (text, qrels) in QUESTIONS.items()
    }
    folder = str(write_beir(tmp_path / "toy", renamed, questions))
    envs = [RetrievalControlEnv(**{**toy, **more}, actions=actions)
            for more in ({}, {"collection": folder})]  # fmt: skip
    rng = Random(0)
    for _ in range(12):
        options = {"split": "train", "index": rng.randrange(3)}
        steps = [rng.randrange(len(envs[0].actions)) for _ in range(5)]
        told = [_play(env, options, steps) for env in envs]
        assert told[0] == told[1]


def _play(env: RetrievalControlEnv, options: dict[str, Any], steps: list[int]) -> str:
    """All that an episode says, but for the ids."""
    said: list[Any] = []
    shown, _ = env.reset(options=options)
    for step in steps:
        shown, reward, terminated, truncated, info = env.step(step)
        said += [reward, info["signals"], info["action_mask"].tolist(), info["query"]]
        said += [[passage.text for passage in info["passages"]]]
        said += [np.asarray(value).tolist() for value in shown.values()]
        if terminated or truncated:
            break
    return json.dumps(said)
