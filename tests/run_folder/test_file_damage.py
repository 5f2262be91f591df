"""Every file of a run, damaged in every way, is named by the reader of the whole run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from damage import DAMAGES, without_overrides

from searchrl.run_folder import Run
from searchrl.runs.listing import describe_run

UNREAD = {"README.md", ".lock", "alarms.jsonl"}


@pytest.mark.parametrize(
    "damage",
    [pytest.param(d, marks=() if d == "flipped" else pytest.mark.thorough) for d in DAMAGES],
)
def test_every_damaged_file_is_named(damage: str, micro_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in UNREAD]
    assert {"config.yaml", "model.safetensors", "state.json"} <= {path.name for path in files}
    assert describe_run(Run(run), deep=True).damaged == ()
    for path in files:
        whole = path.rename(tmp_path / "whole")
        shutil.copyfile(whole, path)
        DAMAGES[damage](path)
        with without_overrides():
            row = describe_run(Run(run), deep=True)
        assert any(f"'{path}'" in text for text in row.damaged), path
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        whole.rename(path)
