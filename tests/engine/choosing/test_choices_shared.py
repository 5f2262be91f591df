"""Two processes train a network of choices as one does: episodes, metrics, weights, a resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine.choosing.choosing_toy import ARMS
from reseal import unfinish
from safetensors.torch import load_file

from searchrl import Run, train

TESTS = Path(__file__).resolve().parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]

COMPARED = {
    *("reward", "env", "loss", "entropy", "grad_norm", "kl", "value_loss", "max_abs_log_ratio")
}

CRITIC = '''
"""Advantages are what a turn and those after it earned, less what the critic expected."""

from searchrl import hookimpl
from searchrl.algorithms import Algorithm


def returns(step):
    return [[sum(earned[turn:]) for turn in range(len(earned))] for earned in step.turn_rewards]


def gains(step):
    pairs = zip(returns(step), step.values)
    return [[got - expected for got, expected in zip(*pair)] for pair in pairs]


def make_critic():
    import torch

    def loss(columns, settings):
        ratio_T = torch.exp(columns.logp_T - columns.old_logp_T)
        errors_T = (columns.target_T - columns.value_T).square()
        extra = 0.5 * (columns.weight_T * errors_T).sum()
        return columns.reduce(ratio_T * columns.adv_T, ratio_T, extra_loss=extra)

    return Algorithm("critic", gains, loss, "token-mean", needs_values=True, targets=returns)


@hookimpl
def register_algorithms(register):
    register("critic", make_critic)
'''


def settings(folder: Path, algorithm: str, **more: Any) -> dict[str, Any]:
    """Five prompts a step: three for one process, two for the other."""
    plugin = folder / "critic.py"
    plugin.write_text(CRITIC)
    return {
        "env": "arms",
        "policy": "gru",
        "plugins": [ARMS, str(plugin)],
        "algorithm": {"name": algorithm, "beta": 0.01 if algorithm == "grpo" else 0},
        "optim": {"lr": 0.02, "warmup_steps": 0, "mini_batches": 2},
        "rollout": {"prompts_per_step": 5, "group_size": 6},
        "eval": {"num_tasks": 3, "every": 1},
        "checkpoint": {"every": 1, "keep_last": 9},
        "max_steps": 3,
        "num_threads": 1,
        "device": "cpu",
        "run_dir": str(folder / "run"),
    } | more


def train_in_two(folder: Path, *words: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "OMP_NUM_THREADS": "1",
    }
    command = [*TORCHRUN, "-m", "searchrl", "train", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("start-up checks") == 1


def rollouts_of(run: Run) -> list[tuple[Any, ...]]:
    names = ("rollout_id", "step", "ids", "generated_text", "reward")
    return [tuple(row[name] for name in names) for row in run.rollouts()]


def assert_same(one: Run, two: Run) -> None:
    assert rollouts_of(one) == rollouts_of(two)
    ours, theirs = (load_file(run.path / "policy" / "weights.safetensors") for run in (one, two))
    start = load_file(one.path / "checkpoints" / "step_000000" / "policy" / "weights.safetensors")
    assert max(float((ours[name] - start[name]).abs().max()) for name in ours) > 0.01
    for name, weight in ours.items():
        assert float((weight - theirs[name]).abs().max()) < 1e-5, name
    for mine, yours in zip(one.metrics, two.metrics, strict=True):
        for key in COMPARED & mine.keys():
            assert yours[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-6), key


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["grpo", "critic"])
def test_two_processes_train_as_one_does(algorithm: str, tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    (two / "config.yaml").write_text(json.dumps(settings(two, algorithm)))
    train_in_two(two, "--config", str(two / "config.yaml"))
    one = train(settings(tmp_path, algorithm))
    assert len(rollouts_of(one)) > 90
    assert_same(one, Run.open(two / "run"))


@pytest.mark.thorough
def test_two_processes_go_on_where_one_stopped(tmp_path: Path) -> None:
    whole = train(settings(tmp_path, "critic", run_dir=str(tmp_path / "whole")))
    stopped = train(settings(tmp_path, "critic"))
    for step in (2, 3):
        (stopped.path / "checkpoints" / f"step_{step:06d}").rename(tmp_path / f"gone_{step}")
    unfinish(stopped.path)
    train_in_two(tmp_path, "--resume", str(stopped.path), "--trust")
    assert_same(whole, Run.open(stopped.path))
