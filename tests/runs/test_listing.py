"""`searchrl runs`: what it says of a run is in its files, and pruning takes what it may."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import call, complaint, succeed
from damage import flip
from reseal import reseal

from searchrl.config import build_config
from searchrl.run_folder import Run, list_checkpoints
from searchrl.runs.listing import State, describe_run, list_runs, prune_checkpoints


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    """A finished run of one step, with checkpoints 0 and 1, the second the best."""
    folder = tmp_path / "runs" / "mine"
    shutil.copytree(micro_run, folder)
    return folder


def change(run: Path, name: str, **facts: Any) -> None:
    values = json.loads((run / name).read_text("utf-8"))
    (run / name).write_text(json.dumps(values | facts), "utf-8")


def rows(*words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(succeed("runs", *words, "--json").stdout)["runs"]
    return found


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_row_says_what_when_how_far_how_good_and_how_large(run: Path) -> None:
    (row,) = rows(run.parent)
    summary = Run.open(run).summary
    assert (row["program"], row["envs"], row["model"]) == ("train", ["regulations"], "model")
    assert row["started"] == Run.open(run).provenance["started"] and row["duration_s"] > 0
    assert (row["state"], row["step"], row["num_steps"]) == ("finished", 1, 1)
    assert row["figure"] == "em"
    assert [row["before"], row["after"]] == [summary[t]["em"]["value"] for t in ("before", "after")]
    assert row["bytes"] == size_of(run)
    assert row["checkpoint_bytes"] == size_of(run / "checkpoints") > 0


def test_table_shows_every_run_of_the_default_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent.parent)
    text = succeed("runs", env={"COLUMNS": "160"}).stdout
    assert "runs/mine" in text and "train regulations, model" in text and "finished" in text
    assert "em 0.000 → 0.000" in text


def test_runs_inside_of_runs_and_other_folders_are_none(run: Path) -> None:
    shutil.copytree(run, run / "copy")
    (run.parent / "other").mkdir()
    (run.parent / "other" / "config.yaml").write_text("a: 1")
    assert [row["path"] for row in rows(run.parent)] == [str(run)]
    later = Path(shutil.copytree(run, run.parent / "a"))
    change(later, "provenance.json", started="2999-01-01", program="sft")
    stages = {"stages": [{"steps": 3}, {"steps": 4}]}
    (later / "config.yaml").write_text(build_config({"sft": stages}).to_yaml(), "utf-8")
    reseal(later)
    first, second = list_runs([run.parent])
    assert (first.path, second.path, second.num_steps) == (run, later, 7), "the newest is last"


def test_state_is_told_from_the_files_and_the_process(run: Path) -> None:
    def state() -> State:
        reseal(run)
        return describe_run(Run(run)).state

    assert state() is State.FINISHED
    (run / "summary.json").unlink()
    here = platform.node()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    change(run, "provenance.json", process={"host": here, "pid": ended.pid})
    assert state() is State.STOPPED
    change(run, "provenance.json", process={"host": here, "pid": os.getpid()})
    assert state() is State.RUNNING
    change(run, "provenance.json", process={"host": "another", "pid": os.getpid()})
    assert state() is State.STOPPED
    metrics = run / "metrics.jsonl"
    rows_of_steps = metrics.read_text("utf-8")
    metrics.write_text("", "utf-8")
    assert describe_run(Run(run)).step == 1, "that of its newest checkpoint"
    shutil.rmtree(run / "checkpoints")
    assert state() is State.BROKEN and describe_run(Run(run)).step == 0
    (run / "journal.jsonl").touch()
    assert state() is State.STOPPED, "its program goes on from the journal"
    metrics.write_text(rows_of_steps, "utf-8")
    assert describe_run(Run(run)).step == 1, "the last that was recorded"


def test_run_whose_files_are_damaged_is_listed_all_the_same(run: Path) -> None:
    (run / "summary.json").write_text("{")
    (run / "metrics.jsonl").write_text("{\n")
    change(run, "provenance.json", process=None)
    (row,) = list_runs([run.parent])
    assert row.path == run and row.figure is None and row.state is State.STOPPED


def name_best(run: Path, step: int) -> None:
    path = run / "checkpoints" / "step_000001" / "state.json"
    state = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(state | {"best": state["best"] | {"step": step}}), "utf-8")
    reseal(run)


def test_pruning_keeps_the_newest_and_the_best(run: Path) -> None:
    assert [folder.name for folder in list_checkpoints(run)] == ["step_000000", "step_000001"]
    name_best(run, 0)
    assert "nothing to remove" in succeed("runs", run, "--prune").stdout
    name_best(run, 1)
    kept = size_of(run / "checkpoints")
    freed = prune_checkpoints(Run(run), 1, is_dry=True).freed_bytes
    assert freed == size_of(run / "checkpoints" / "step_000000")
    dry = succeed("runs", run, "--prune", "--dry-run").stdout
    assert "would remove step_000000" in dry and size_of(run / "checkpoints") == kept
    text = succeed("runs", run, "--prune").stdout
    assert "removed step_000000" in text and "freed" in text
    assert [folder.name for folder in list_checkpoints(run)] == ["step_000001"]


def test_mistakes_are_said(tmp_path: Path) -> None:
    assert "there is no folder" in complaint("runs", tmp_path / "none")
    assert "goes with --prune" in complaint("runs", tmp_path, "--keep", 1)
    assert "no runs in" in succeed("runs", tmp_path).stdout


class TestDamage:
    def test_damaged_files_are_named_in_the_table_and_flips_with_verify(self, run: Path) -> None:
        assert rows(run, "--verify")[0]["damaged"] == []
        weights = run / "policy" / "model.safetensors"
        flip(weights)
        assert rows(run)[0]["damaged"] == []
        result = call("runs", run, "--verify", "--json")
        assert result.exit_code == 1 and call("runs", run, "--verify").exit_code == 1
        (said,) = json.loads(result.stdout)["runs"][0]["damaged"]
        assert said.startswith(f"'{weights}' is damaged: its content is not what was written")
        (run / "checkpoints" / "step_000001" / "optimizer.json").write_text("{")
        (row,) = rows(run)
        assert row["checkpoints"] == 1 and "optimizer.json' is damaged" in row["damaged"][0]
        text = succeed("runs", run, env={"COLUMNS": "1000"}).stdout
        assert "finished, damaged" in text and "optimizer.json' is damaged" in text

    def test_pruning_never_removes_the_last_whole_checkpoint(self, run: Path) -> None:
        name_best(run, 1)
        newest, older = (run / "checkpoints" / f"step_{step:06d}" for step in (1, 0))
        flip(newest / "policy" / "model.safetensors")  # of the same size
        assert "nothing to remove" in succeed("runs", run, "--prune").stdout
        assert newest.is_dir() and older.is_dir()
        flip(older / "policy" / "model.safetensors")
        assert "none of its checkpoints is whole" in succeed("runs", run, "--prune").stdout
        assert newest.is_dir()

    def test_pruning_removes_what_a_kill_left(self, run: Path) -> None:
        left = run / "checkpoints" / ".step_000007.partial"
        left.mkdir()
        succeed("runs", run, "--prune", "--keep", 9, "--dry-run")
        assert left.is_dir()
        succeed("runs", run, "--prune", "--keep", 9)
        assert not left.exists()
