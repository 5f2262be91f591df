"""A run is decided once: what was found is carried, not looked for again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from reseal import reseal, unfinish

from searchrl.cli import main
from searchrl.engine.learning.checkpoint import list_checkpoints

pytestmark = pytest.mark.usefixtures("threads_restored")


@pytest.mark.parametrize(("other", "state"), [("sft", {"step": 1}), ("train", {"demos": 2})])
def test_a_run_of_the_other_program_is_not_continued(
    micro_run: Path, tmp_path: Path, other: str, state: dict[str, int]
):
    """`sft --resume` trained the policy of a `train` run on, on demonstrations."""
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    (list_checkpoints(run)[-1] / "state.json").write_text(json.dumps(state))
    reseal(run)
    unfinish(run)
    result = CliRunner().invoke(main, [other, "--resume", str(run)])
    way_on = {"sft": "train", "train": "sft"}[other]
    assert result.exit_code > 0
    assert f"is a run of `searchrl {way_on}`; continue it with: searchrl {way_on}" in result.output
