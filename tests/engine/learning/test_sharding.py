"""Processes that hold a part of every weight: the gradient, checkpoints and the run of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sharded_play import ADAPTERS, CASES, learn
from train_toy import metrics_of, settings, weights_of

from searchrl.engine.learning.workers import ALONE
from searchrl.programs.train import train
from searchrl.run_folder import Run

HERE = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.thorough


def sharded(model: Path, run_dir: Path) -> dict[str, Any]:
    optim = {"lr": 1e-3, "warmup_steps": 1}
    return settings(model, run_dir, max_steps=2, optim=optim, engine={"sharding": "fsdp2"})


def torchrun(count: int, model: Path, folder: Path, run: dict[str, Any]) -> list[Any]:
    """What each of `count` processes got; see `sharded_play.main`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
    command += [str(count), str(HERE / "sharded_play.py"), str(model), str(folder), json.dumps(run)]
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE.parent), str(HERE)])
    around = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{count}.{rank}", weights_only=False) for rank in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def two(small_qwen3: Path, micro_model: Path, folder: Path) -> list[Any]:
    for adapter in ADAPTERS:
        learn(small_qwen3, ALONE, adapter=adapter, end=folder / f"1-{adapter}")
    return torchrun(2, small_qwen3, folder, sharded(micro_model, folder / "run"))


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_gradient_and_the_figures_of_one(
    two: list[Any], small_qwen3: Path, name: str
):
    alone = learn(small_qwen3, ALONE, **CASES[name])
    for one in (found[name] for found in two):
        for ours, theirs in zip(alone["gradients"], one["gradients"], strict=True):
            assert (ours - theirs).norm() <= 1e-5 * ours.norm() > 0
        ensure_close(alone, one)
        assert one["metrics"] == pytest.approx(alone["metrics"], rel=1e-5, abs=1e-6)
        assert one["ratios"].keys() == alone["ratios"].keys()
        for rollout_id, ratio in alone["ratios"].items():
            assert one["ratios"][rollout_id] == pytest.approx(ratio, rel=1e-5)


def ensure_close(alone: dict[str, Any], other: dict[str, Any]) -> None:
    ours, theirs = alone["weights"], other["weights"]
    assert ours.keys() == theirs.keys()
    assert max((ours[name] - theirs[name]).abs().max() for name in ours) <= 1e-5


def test_a_checkpoint_goes_on_in_any_number_of_processes(
    two: list[Any], small_qwen3: Path, folder: Path
):
    """A lost moment, or a shard in another's place, gives other weights after the next step."""
    three = torchrun(3, small_qwen3, folder, {})
    for name in ADAPTERS:
        begins = [folder / f"{count}-{name}" for count in (1, 2)]
        alone, of_two = (learn(small_qwen3, ALONE, adapter=name, begin=one) for one in begins)
        for one in (of_two, *(found[f"go on {name}"] for found in (*two, *three))):
            ensure_close(alone, one)


def test_a_run_that_crashed_and_was_resumed_is_that_of_one_process(
    two: list[Any], micro_model: Path, folder: Path, tmp_path: Path, threads_restored: None
):
    assert "weights are sharded, and other processes do not" in two[0]["crash"]
    runs = train(sharded(micro_model, tmp_path / "one")), Run.open(folder / "run")
    ensure_close(*({"weights": weights_of(run.path / "policy")} for run in runs))
    for mine, yours in zip(*map(metrics_of, runs), strict=True):
        assert mine.keys() == yours.keys()
        for key in mine.keys() - {"phase", "slot_use"}:
            assert yours[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-5), key
    ours, theirs = ([row["generated_text"] for row in run.rollouts()] for run in runs)
    assert ours == theirs
