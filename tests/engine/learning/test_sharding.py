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
from sharded_play import CASES, go_on, learn, save
from train_toy import metrics_of, settings, weights_of

from searchrl.engine.learning.workers import ALONE
from searchrl.programs.train import train
from searchrl.run_folder import Run

HERE = Path(__file__).resolve().parents[1]
ADAPTERS = ("full", "lora")

pytestmark = pytest.mark.thorough


def torchrun(count: int, model: Path, folder: Path, jobs: list[Any]) -> list[Any]:
    """What each of `count` processes got; see `sharded_play.main`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(count), str(HERE / "sharded_play.py")]
    command += [str(model), str(folder), json.dumps(jobs)]
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE.parent), str(HERE)])
    around = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{count} {r}.pt", weights_only=False) for r in range(count)]


def sharded(model: Path, run_dir: Path) -> dict[str, Any]:
    optim = {"lr": 1e-3, "warmup_steps": 1}
    engine = {"sharding": "fsdp2", "generator": "slots"}
    return settings(model, run_dir, max_steps=2, optim=optim, engine=engine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def two(small_qwen3: Path, micro_model: Path, folder: Path) -> list[Any]:
    for adapter in ADAPTERS:
        save(small_qwen3, ALONE, folder / f"one-{adapter}", adapter)
    jobs: list[Any] = [["learn", "", ""], ["run", "", sharded(micro_model, folder / "run")]]
    jobs += [["save", f"two-{adapter}", adapter] for adapter in ADAPTERS]
    jobs += [["go on", f"one-{adapter}", adapter] for adapter in ADAPTERS]
    return torchrun(2, small_qwen3, folder, jobs)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_gradient_and_the_figures_of_one(
    two: list[Any], small_qwen3: Path, name: str
):
    alone = learn(small_qwen3, ALONE, **CASES[name])
    for one in (found[name] for found in two):
        if alone["gradient"] is None:
            assert one["gradient"] is None
        else:
            gap = (alone["gradient"] - one["gradient"]).norm()
            assert gap <= 1e-5 * alone["gradient"].norm() > 0
        assert one["weights"].keys() == alone["weights"].keys()
        for key, weight in alone["weights"].items():
            assert (weight - one["weights"][key]).abs().max() <= 1e-5, key
        assert one["metrics"] == pytest.approx(alone["metrics"], rel=1e-5, abs=1e-6)
        assert one["columns"].keys() == alone["columns"].keys()
        for rollout_id, column in alone["columns"].items():
            assert one["columns"][rollout_id][1] == pytest.approx(column[1], rel=1e-5)


def test_a_checkpoint_goes_on_in_any_number_of_processes(
    two: list[Any], small_qwen3: Path, folder: Path
):
    """A lost moment, or a shard in another's place, gives other weights after the next step."""
    jobs = [["go on", f"two-{adapter}", adapter] for adapter in ADAPTERS]
    three = torchrun(3, small_qwen3, folder, jobs)
    for adapter in ADAPTERS:
        alone = go_on(small_qwen3, ALONE, folder / f"one-{adapter}", adapter)
        found = [go_on(small_qwen3, ALONE, folder / f"two-{adapter}", adapter)]
        found += [one[f"one-{adapter} {adapter}"] for one in two]
        found += [one[f"two-{adapter} {adapter}"] for one in three]
        for weights in found:
            assert weights.keys() == alone.keys()
            assert max((weights[key] - alone[key]).abs().max() for key in alone) <= 1e-5
    assert not [path for path in folder.rglob("two-*/**/*") if path.suffix in (".pt", ".pkl")]


def test_a_run_that_crashed_and_was_resumed_is_that_of_one_process(
    two: list[Any], micro_model: Path, tmp_path: Path, threads_restored: None
):
    assert "weights are sharded, and the other processes" in two[0]["crash"]
    both, one = Run.open(two[0]["run"]), train(sharded(micro_model, tmp_path / "one"))
    ours, theirs = weights_of(one.path / "policy"), weights_of(both.path / "policy")
    assert ours.keys() == theirs.keys()
    assert max((ours[name] - theirs[name]).abs().max() for name in ours) <= 1e-5
    for mine, yours in zip(metrics_of(one), metrics_of(both), strict=True):
        assert mine.keys() == yours.keys()
        for key in mine.keys() - {"phase", "slot_use"}:
            assert yours[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-5), key
    texts = [[row["generated_text"] for row in run.rollouts()] for run in (one, both)]
    assert texts[0] == texts[1]
