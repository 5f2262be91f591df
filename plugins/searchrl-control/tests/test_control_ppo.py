"""The algorithm `control-ppo`: its advantages against the hand table, its loss, its criteria."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from searchrl_control.learning.ppo import advantages, loss, make_ppo, targets

import searchrl
from searchrl.core.advantage import StepScores
from searchrl.core.loss import LossSettings, loss_columns
from searchrl.testing import check_plugin

MODULE = "searchrl_control"
HOW = {"discount": 0.5, "decay": 0.5}
# The hand table of test_control_published_bugs.py, and a rollout that nobody scored.
# A limit cut the second one, where the critic expected 10 afterwards.
STEP = StepScores(
    rewards=[3.0, 5.0, float("nan")],
    group_ids=["a", "b", "c"],
    is_scored=[True, True, False],
    values=[(2.0, 4.0), (8.0, 2.0, 6.0, 10.0), (1.0,)],
    turn_rewards=[(1.0, 2.0), (0.0, 1.0, 4.0), (float("nan"),)],
    is_cut=[False, True, False],
)


def test_a_cut_episode_goes_on_in_the_value_after_it_and_one_that_ended_in_zero() -> None:
    """The second, from the back: delta 4 + .5 * 10 - 6 = 3; 2 + .25 * 3; -7 + .25 * 2.75."""
    assert targets(STEP, **HOW) == [[2.5, 2.0], [1.6875, 4.75, 9.0], [1.0]]
    ended = replace(STEP, is_cut=[False] * 3)
    assert targets(ended, **HOW) == [[2.5, 2.0], [1.375, 3.5, 4.0], [1.0]]


def test_advantages_are_those_of_the_hand_table_normalised_over_scored_turns() -> None:
    hand = [0.5, -2.0, -6.3125, 2.75, 3.0]
    mean = sum(hand) / 5
    spread = (sum((value - mean) ** 2 for value in hand) / 5) ** 0.5
    told = advantages(STEP, **HOW)
    assert [value for one in told[:2] for value in one] == pytest.approx(
        [(value - mean) / spread for value in hand], rel=1e-6
    )
    assert told[2] == [0.0]


def test_a_policy_without_a_critic_is_refused() -> None:
    with pytest.raises(ValueError, match="critic"):
        advantages(StepScores([1.0], ["a"], [True]), **HOW)
    assert make_ppo().needs_values and make_ppo().targets is not None


def test_it_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (report,) = check_plugin("control-ppo", kind="algorithm", plugins=[MODULE])
    assert report.is_good, report.failed


def test_a_network_learns_the_value_of_what_it_sees(toy: dict[str, Any], tmp_path: Path) -> None:
    run = searchrl.train(
        {
            "plugins": [MODULE],
            "policy": "control-mlp",
            "algorithm": {"name": "control-ppo"},
            "tasks": [{"env": {"name": "retrieval-control", **toy, "reward": "gain"}}],
            "max_steps": 12,
            "optim": {"lr": 0.02},
            "rollout": {"prompts_per_step": 3, "group_size": 8},
            "eval": {"num_tasks": 1, "forced": False},
            "run_dir": str(tmp_path / "run"),
        }
    )
    steps = [row for row in run.metrics if row["phase"] == "train"]
    assert steps[0]["max_abs_log_ratio"] == 0
    assert steps[-1]["value_loss"] < 0.6 * steps[0]["value_loss"]


def test_the_value_loss_is_the_square_of_the_error() -> None:
    """Two turns of weight 1/2 with errors 3 and -1: .5 * (9 + 1) / 2."""
    zeros_T = torch.zeros(2)
    columns = loss_columns(
        zeros_T, zeros_T, zeros_T, torch.full((2,), 0.5),
        value_T=torch.tensor([1.0, 1.0]), target_T=torch.tensor([4.0, 0.0]),
    )  # fmt: skip
    told, _ = loss(columns, LossSettings(), value_weight=0.5, entropy_weight=0.0)
    assert told.item() == 2.5
