"""The reward of a run, as the page weighs with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.report.overview import describe_weights, list_rewarded
from searchrl.run_folder import Run, RunWriter


@pytest.mark.parametrize(
    ("reward", "weights", "names"),
    [
        ("0.2*format+em-1", {"format": 0.2, "em": 1.0}, ["format", "em"]),
        ({0: "format", 1: "em"}, {"em": 1.0}, ["format", "em"]),
        ("auto", None, []),
        ("format+", None, []),
    ],
)
def test_the_weights_are_those_of_the_last_steps(
    reward: Any, weights: dict[str, float] | None, names: list[str], tmp_path: Path
):
    run = Run(RunWriter.create(build_config({"reward": reward}), tmp_path / "run").path)
    told = describe_weights(run)
    assert (told and told["weights"]) == weights and list_rewarded(run) == names
    assert told is None or told["constant"] == (-1.0 if reward == "0.2*format+em-1" else 0.0)
