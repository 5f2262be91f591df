"""Numbers that are not finite: said or absent, never saved, and nothing finished is lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from train_toy import TOY_PLUGIN, settings

from searchrl.programs.train import train
from searchrl.run_folder import Run
from searchrl.trackers.rows import read_rows

pytestmark = pytest.mark.usefixtures("threads_restored")

PLUGIN = '''
from dataclasses import replace

from searchrl import hookimpl
from searchrl.algorithms.builtin import make_grpo


def make_shown():
    """Its gradient is that of GRPO, and the figure it shows is no number."""
    base = make_grpo()

    def loss(columns, settings):
        value, stats = base.loss(columns, settings)
        return value, replace(stats, loss=float("nan"))

    return replace(base, loss=loss)


def make_real():
    """Its loss is no number, and neither is its gradient."""
    base = make_grpo()

    def loss(columns, settings):
        value, stats = base.loss(columns, settings)
        return value * float("inf"), replace(stats, loss=float("inf"))

    return replace(base, loss=loss)


@hookimpl
def register_algorithms(register):
    register("shown", make_shown)
    register("real", make_real)
'''


def config(micro_model: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return settings(micro_model, tmp_path / "run", eval={"every": 0}, **more)


def finish(config: dict[str, Any]) -> Run:
    """Train to the end; that it ended early is what these tests are about."""
    try:
        return train(config)
    except (ValueError, ArithmeticError) as error:
        raise AssertionError(f"the run ended with {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("algorithm", ["shown", "real"])
def test_a_loss_that_is_not_finite_is_absent_and_counted(
    micro_model: Path, tmp_path: Path, algorithm: str
):
    """It ended the run with `Out of range float values are not JSON compliant`."""
    plugin = tmp_path / "losses.py"
    plugin.write_text(PLUGIN)
    more = {"algorithm": {"name": algorithm, "beta": 0.0}, "max_steps": 2}
    more |= {"plugins": [str(TOY_PLUGIN), str(plugin)], "log": {"trackers": ["jsonl"]}}
    run = finish(config(micro_model, tmp_path, **more))
    for name in ("metrics.jsonl", "tracker.jsonl"):
        rows = [row for row in read_rows(run.path / name) if row["phase"] == "train"]
        trained = [row["metrics"] for row in rows if row["metrics"]["num_rollouts"]["value"]]
        assert len(rows) == 2 and trained
        for metrics in trained:
            assert "loss" not in metrics and metrics["nonfinite_figures"]["value"] >= 1
            assert metrics["skipped_steps"]["value"] == (algorithm == "real")
            assert all(math.isfinite(metric["value"]) for metric in metrics.values())
