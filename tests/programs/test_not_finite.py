"""Numbers that are not finite: said or absent, never saved, and nothing finished is lost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from train_toy import TOY_PLUGIN, settings

from searchrl.programs.train import train
from searchrl.trackers.rows import read_rows

pytestmark = pytest.mark.usefixtures("threads_restored")

PLUGIN = """
from dataclasses import replace

from searchrl import hookimpl
from searchrl.algorithms.builtin import make_grpo


def make(factor):
    base = make_grpo()

    def loss(columns, settings):
        value, stats = base.loss(columns, settings)
        return value * factor, replace(stats, loss=float("nan"))

    return replace(base, loss=loss)


@hookimpl
def register_algorithms(register):
    register("shown", lambda: make(1.0))  # no number is shown; the gradient is that of GRPO
    register("real", lambda: make(float("inf")))
"""


@pytest.mark.parametrize("algorithm", ["shown", "real"])
def test_a_loss_that_is_not_finite_is_absent_and_counted(
    micro_model: Path, tmp_path: Path, algorithm: str
):
    """It ended the run with `Out of range float values are not JSON compliant`."""
    plugin = tmp_path / "losses.py"
    plugin.write_text(PLUGIN)
    more = {"algorithm": {"name": algorithm, "beta": 0.0}, "max_steps": 2}
    more |= {"plugins": [str(TOY_PLUGIN), str(plugin)], "log": {"trackers": ["jsonl"]}}
    run = train(settings(micro_model, tmp_path / "run", eval={"every": 0}, **more))
    for name in ("metrics.jsonl", "tracker.jsonl"):
        rows = [row for row in read_rows(run.path / name) if row["phase"] == "train"]
        trained = [row["metrics"] for row in rows if row["metrics"]["num_rollouts"]["value"]]
        assert len(rows) == 2 and trained
        for metrics in trained:
            assert "loss" not in metrics and metrics["nonfinite_figures"]["value"] >= 1
            assert metrics["skipped_steps"]["value"] == (algorithm == "real")
            assert all(math.isfinite(metric["value"]) for metric in metrics.values())
