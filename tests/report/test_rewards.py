"""Which components the page shows as rewarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.report.overview import list_rewarded
from searchrl.run_folder import Run, RunWriter


@pytest.mark.parametrize(
    ("reward", "names"),
    [
        ("0.2*format+em-1", ["format", "em"]),
        ({0: "format", 1: "em"}, ["format", "em"]),
        ("auto", []),
        ("format+", []),
    ],
)
def test_rewarded_components_are_those_of_any_stage(reward: Any, names: list[str], tmp_path: Path):
    run = Run(RunWriter.create(build_config({"reward": reward}), tmp_path / "run").path)
    assert list_rewarded(run) == names
