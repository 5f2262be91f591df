"""Whole runs with Ray: what they record is what one process records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from searchrl_ray.backend import RayBackend
from train_toy import settings

from searchrl import Run, train

OWN = [str(Path(__file__).with_name("slow_world.py")), "searchrl_ray"]
TWO = {"backend": {"name": "ray", "workers": 2}}


def toy(run_dir: Path, **more: Any) -> dict[str, Any]:
    made = settings(Path("tiny"), run_dir, **more)
    return made | {"plugins": [*made["plugins"], *OWN]}


def rows(run: Run) -> list[dict[str, Any]]:
    """What was sampled and what became of it, without the last bits of sums."""
    kept = ("rollout_id", "phase", "step", "ids", "policy_version", "reward", "stop_reason")
    return [{key: row[key] for key in kept} for row in run.rollouts()]


def losses(run: Run) -> list[float]:
    return [r["metrics"]["loss"]["value"] for r in run.read_metrics().rows if r["phase"] == "train"]


@pytest.mark.slow
def test_a_node_that_dies_in_the_middle_of_a_step_changes_nothing_that_is_recorded(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of two workers, one of them killed, is that of one process."""
    task = {"wrapper": {"name": "slow", "seconds": 1.0}}
    more = {"eval": {"every": 0}, "max_steps": 3, "optim": {"lr": 1e-3}}
    alone = train(toy(tmp_path / "alone", **more))
    run, calls, killed = RayBackend.run, [0], [False]

    def killing(self: RayBackend, *args: Any) -> Iterator[Any]:
        calls[0] += 1
        for one in run(self, *args):
            if one is None and calls[0] == 3 and not killed[0]:  # step 2; 1 was the evaluation
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
                killed[0] = True
            yield one

    monkeypatch.setattr(RayBackend, "run", killing)
    both = train(toy(tmp_path / "both", task=task, scale=TWO, **more))
    cluster.add_node(num_cpus=1)
    assert killed[0]
    assert rows(both) == rows(alone)
    assert losses(both) == pytest.approx(losses(alone), rel=1e-3, abs=1e-6)
    names = [[r["metrics"].keys() for r in one.read_metrics().rows] for one in (alone, both)]
    assert names[0] == names[1]


@pytest.mark.slow
def test_two_workers_play_nearly_twice_as_many_rollouts_where_calls_wait(
    cluster: Any, tmp_path: Path
) -> None:
    """Searches of 50 ms, one at a time in each worker, and a generator that takes no time."""

    def seconds(workers: int) -> float:
        scale = {"backend": {"name": "ray", "workers": workers}}
        task = {
            "protocol": {"name": "think-search-answer", "instruction": ""},
            "retriever": "one_at_a_time",
            "reward": "format",
        }
        more = {
            "rollout": {"prompts_per_step": 16, "max_turn_tokens": 100, "max_total_tokens": 900},
            "engine": {"generator": "saying", "max_mismatch": 1e9},
            "eval": {"every": 0},
            "max_steps": 3,
        }
        run = train(toy(tmp_path / str(workers), task=task, scale=scale, **more))
        train_rows = [r for r in run.read_metrics().rows if r["phase"] == "train"]
        return min(r["metrics"]["sample_s"]["value"] for r in train_rows)

    started = time.perf_counter()
    one, two = seconds(1), seconds(2)
    print(f"one worker {one:.2f} s, two {two:.2f} s, in all {time.perf_counter() - started:.0f} s")
    assert one / two >= 1.8
