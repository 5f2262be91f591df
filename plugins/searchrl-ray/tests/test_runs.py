"""Whole runs with Ray: what they record is what one process records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from searchrl_ray.backend import RayBackend
from train_toy import settings

from searchrl import Run, train

OWN = [str(Path(__file__).with_name("slow_world.py")), "searchrl_ray"]

pytestmark = pytest.mark.slow


def toy(run_dir: Path, workers: int = 0, **more: Any) -> Run:
    """A run of three steps; with 0 workers all of it is in this process."""
    scale = {"backend": {"name": "ray", "workers": workers} if workers else None}
    scale |= more.pop("scale", {})
    made = settings(Path("tiny"), run_dir, **{"eval": {"every": 0}, "max_steps": 3, **more})
    return train(made | {"plugins": [*made["plugins"], *OWN], "scale": scale})


def rows(run: Run, *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in run.rollouts()]


def test_a_node_that_dies_in_the_middle_of_a_step_changes_nothing_that_is_recorded(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of two workers, one of them killed, is that of one process."""
    alone = toy(tmp_path / "alone", optim={"lr": 1e-3})
    run, places, killed = RayBackend.run, list[list[int]](), [False]

    def killing(self: RayBackend, *args: Any) -> Iterator[Any]:
        places.append([])
        for one in run(self, *args):
            # In step 2 (call 1 is the evaluation), while both nodes play.
            if one is None and len(places) == 3 and not places[-1] and not killed[0]:
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
                killed[0] = True
            places[-1] += [] if one is None else [one[0]]
            yield one

    monkeypatch.setattr(RayBackend, "run", killing)
    monkeypatch.setattr("searchrl_ray.backend.TICK_S", 0.02)  # not at the end of the step
    both = toy(tmp_path / "both", workers=2, optim={"lr": 1e-3})
    cluster.add_node(num_cpus=1)
    assert killed[0] and all(sorted(one) == [0, 1] for one in places)
    # What was sampled and what became of it, without the last bits of sums.
    names = "rollout_id", "phase", "step", "ids", "policy_version", "reward", "stop_reason"
    assert rows(both, *names) == rows(alone, *names)
    steps = [[r["metrics"] for r in one.read_metrics().rows] for one in (alone, both)]
    assert [one.keys() for one in steps[0]] == [one.keys() for one in steps[1]]
    losses = [[one["loss"]["value"] for one in run if "loss" in one] for run in steps]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3, abs=1e-6)


def test_steps_drawn_ahead_have_the_weights_from_before_the_update(
    cluster: Any, tmp_path: Path
) -> None:
    run = toy(tmp_path / "run", 2, algorithm={"name": "tis"}, scale={"max_staleness": 1})
    played = {tuple(row.values()) for row in rows(run, "phase", "step", "policy_version")}
    assert {row[1:] for row in played if row[0] == "train"} == {(1, 0), (2, 0), (3, 1)}


def test_two_workers_play_nearly_twice_as_many_rollouts_where_calls_wait(
    cluster: Any, tmp_path: Path
) -> None:
    """Searches of 50 ms, one at a time in each worker, and a generator that takes no time."""
    protocol = {"name": "think-search-answer", "instruction": ""}
    more = {
        "task": {"protocol": protocol, "retriever": "one_at_a_time", "reward": "format"},
        "rollout": {"prompts_per_step": 16, "max_turn_tokens": 100, "max_total_tokens": 900},
        "engine": {"generator": "saying", "max_mismatch": 1e9},
    }
    runs = [toy(tmp_path / str(workers), workers, **more) for workers in (1, 2)]
    steps = [
        [r["metrics"] for r in one.read_metrics().rows if r["phase"] == "train"] for one in runs
    ]
    one, two = (min(step["sample_s"]["value"] for step in run) for run in steps)
    print(f"one worker {one:.2f} s, two {two:.2f} s")
    assert one / two >= 1.8


def test_ray_train_starts_the_processes_of_one_run(tmp_path: Path) -> None:
    config = settings(Path("tiny"), tmp_path / "run", max_steps=1)
    (tmp_path / "config.json").write_text(json.dumps(config))
    start = "from searchrl_ray.learners import ray_train; ray_train()"
    command = [sys.executable, "-c", start, "--address", "local", "--"]
    command += ["--config", str(tmp_path / "config.json")]
    subprocess.run(command, check=True)
    played = rows(Run.open(tmp_path / "run"), "phase", "rollout_id")
    assert len([row for row in played if row["phase"] == "train"]) == 6
