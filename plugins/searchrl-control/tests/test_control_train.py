"""The ordinary `train` with a network that decides: what the run folder says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import searchrl

MODULE = "searchrl_control"


@pytest.mark.parametrize(
    ("policy", "actions"), [("control-linear", "heads"), ("control-gru", "wide")]
)
def test_a_network_is_trained_and_kept(
    toy: dict[str, Any], tmp_path: Path, policy: str, actions: str
) -> None:
    run = searchrl.train(
        {
            "plugins": [MODULE],
            "policy": policy,
            "tasks": [{"env": {"name": "retrieval-control", **toy, "actions": actions}}],
            "max_steps": 2,
            "optim": {"lr": 0.003},
            "rollout": {"prompts_per_step": 3, "group_size": 8},
            "eval": {"num_tasks": 2, "forced": False},
            "run_dir": str(tmp_path / "run"),
        }
    )
    steps = [row for row in run.metrics if row["phase"] == "train"]
    assert len(steps) == 2
    assert steps[0]["entropy"] > 1 and 0 < steps[0]["reward"] < 1
    # What was drawn is what is trained: the ratio is 1 before the first update.
    assert steps[0]["max_abs_log_ratio"] == 0
    assert (tmp_path / "run" / "policy" / "policy.json").is_file()
