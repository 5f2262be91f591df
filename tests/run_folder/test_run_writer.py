"""What a reopened run keeps, and that nothing is in it twice."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from searchrl.config import build_config
from searchrl.run_folder import Run, RunWriter, find_damage
from searchrl.run_folder import writer as writer_module
from searchrl.run_folder.rollouts import may_hold, name_rollout, rollout_files


def written(folder: Path) -> RunWriter:
    """A run after step 4: an evaluation during it follows steps 2 and 4."""
    writer = RunWriter.create(build_config({}), folder)
    writer.write_provenance([], program="train")
    writer.log(0, {}, "before")
    for step in range(1, 5):
        writer.write_rollouts(f"step_{step:06d}", [{"step": step}], compress=False)
        writer.log(step, {}, "train")
        if step % 2 == 0:
            for name in ("eval_during", "eval_during_forced"):
                writer.write_rollouts(f"{name}_{step:06d}", [{"step": step}], compress=True)
            writer.log(step, {}, "during")
    return writer


def places(folder: Path) -> list[tuple[int, str]]:
    return [(row["step"], row["phase"]) for row in Run(folder).metrics]


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "rollouts").iterdir()}


def test_a_file_is_not_listed_while_it_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = written(tmp_path / "run")

    def killed(path: Path, rows: object) -> None:
        path.write_text("other rows")
        raise KeyboardInterrupt

    assert "rollouts/step_000004.jsonl" in Run(writer.path).files
    monkeypatch.setattr(writer_module, "write_rollouts", killed)
    with pytest.raises(KeyboardInterrupt):
        writer.write_rollouts("step_000004", [], compress=False)
    assert "rollouts/step_000004.jsonl" not in Run(writer.path).files


def test_evaluation_that_will_be_done_again_is_dropped(tmp_path: Path) -> None:
    """Its row is on disk, and the checkpoint of its step does not count it: a kill in between."""
    writer = written(tmp_path / "run")
    before = files(writer.path)
    RunWriter.reopen(writer.path, 4, evaluated=2)
    assert places(writer.path)[-2:] == [(3, "train"), (4, "train")]
    assert before - files(writer.path) == {
        "eval_during_000004.jsonl.gz",
        "eval_during_forced_000004.jsonl.gz",
    }


def test_what_counts_stays(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    before = files(writer.path)
    RunWriter.reopen(writer.path, 4, evaluated=4)
    assert files(writer.path) == before and places(writer.path)[-1] == (4, "during")
    RunWriter.reopen(writer.path, 3, evaluated=2)
    assert places(writer.path)[-2:] == [(2, "during"), (3, "train")]


def test_evaluations_after_the_end_stay_only_where_their_row_is_kept(tmp_path: Path) -> None:
    """A kill comes between the files and the row."""
    writer = written(tmp_path / "run")
    for name in ("eval_before", "eval_after", "eval_after_forced"):
        writer.write_rollouts(name, [], compress=True)
    (writer.path / "rollouts" / "step_000009.jsonl").mkdir()
    writer.log(4, {}, "after")
    before = files(writer.path)
    RunWriter.reopen(writer.path, 4)
    assert before ^ files(writer.path) == {"step_000009.jsonl", "step_000009.jsonl.damaged"}
    RunWriter.reopen(writer.path, 3).log(4, {}, "train")
    after = {"eval_after.jsonl.gz", "eval_after_forced.jsonl.gz"}
    assert files(writer.path) & after == set() and "eval_before.jsonl.gz" in files(writer.path)
    writer.write_rollouts("eval_after", [], compress=True)
    RunWriter.reopen(writer.path, 4)
    assert not files(writer.path) & after


def test_what_a_kill_left_is_removed_and_newer_checkpoints_are_set_aside(tmp_path: Path) -> None:
    writer, said = written(tmp_path / "run"), list[str]()
    (writer.path / "failures").mkdir()
    newer = writer.path / "checkpoints" / "step_0000005"
    for place in (writer.path, *(p for p in writer.path.iterdir() if p.is_dir()), newer):
        (place / ".a.partial").mkdir(parents=True)
        (place / "b.partial").touch()
    RunWriter.reopen(writer.path, 4, on_note=said.append)
    assert not list(writer.path.rglob("*.partial")) + list(writer.path.rglob(".*.partial"))
    assert newer.with_name("step_0000005.damaged").is_dir() and not newer.exists()
    assert said == [f"kept as '{newer}.damaged', for you to look at or to delete"]


def test_a_kill_while_trajectories_are_dropped_leaves_none_that_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = written(tmp_path / "run")

    def killed(path: Path) -> None:
        os.remove(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        RunWriter.reopen(writer.path, 3, evaluated=2)
    assert "step_000004.jsonl" not in files(writer.path)
    assert find_damage(writer.path, deep=True) == []


def test_a_kill_between_the_rows_that_stay_and_their_checksum_damages_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = written(tmp_path / "run")

    def killed(path: Path, data: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writer_module, "replace_file", killed)
        RunWriter.reopen(writer.path, 2)
    assert find_damage(writer.path) == []


def test_a_row_is_on_the_disk_with_its_checksum_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(writer_module.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    file = written(tmp_path / "run").path / "metrics.jsonl"
    assert synced.count(file.stat().st_ino) == 7
    file.write_bytes(file.read_bytes()[:-20])
    assert "metrics.jsonl' is damaged" in find_damage(file.parent)[0]


def test_the_record_says_which_process_and_which_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "peft":
            raise metadata.PackageNotFoundError
        return real(name)

    monkeypatch.setattr(writer_module.metadata, "version", version)
    record = Run(written(tmp_path / "run").path).provenance
    assert record["process"]["pid"] == os.getpid()
    assert record["versions"]["peft"] is None and record["versions"]["torch"] == real("torch")


def test_facts_that_become_known_are_added(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    writer.update_provenance(changes=[{"what": ["the data"]}])
    RunWriter.reopen(writer.path, 4).update_provenance(rollbacks=[])
    record = Run(writer.path).provenance
    assert (record["changes"], record["rollbacks"]) == ([{"what": ["the data"]}], [])
    assert record["program"] == "train" and "finished" not in record


def test_a_run_lasts_as_long_as_it_was_open_in_all(tmp_path: Path) -> None:
    writer = RunWriter.create(build_config({}), tmp_path / "run", spent_s=3600)
    writer.write_provenance([])
    begun = datetime.now(UTC) - datetime.fromisoformat(Run(writer.path).provenance["started"])
    assert 3599 < begun.total_seconds() < 3660
    writer.write_summary({"steps": 2})
    assert Run(writer.path).find_end().startswith(f"'{writer.path}' is finished at step 2 of 2")
    RunWriter.reopen(writer.path, 2).update_provenance()
    record = Run(writer.path).provenance
    assert 3600 <= record["duration_s"] < 3660 and "finished" not in record


def test_the_newest_files_of_one_kind_stay_and_others_too(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    before = files(writer.path)
    writer.write_rollouts("eval_after", [], compress=False, keep=1)
    writer.write_rollouts("step", [], compress=False)
    writer.write_rollouts("step_000005", [], compress=True, keep=3)
    gone = {f"step_{step:06d}.jsonl" for step in (1, 2)}
    assert before - files(writer.path) == gone and "step.jsonl" in files(writer.path)
    shutil.rmtree(writer.path / "rollouts")  # somebody saved space
    writer.write_rollouts("step_000006", [], compress=False)
    assert "step_000006.jsonl" in files(writer.path)


def test_files_of_trajectories_are_read_in_the_order_of_the_run(tmp_path: Path) -> None:
    names = ["eval_before", "eval_before_forced", "step_000002", "eval_during_000002",
             "step_000010", "eval_after"]  # fmt: skip
    writer = RunWriter.create(build_config({}), tmp_path / "run")
    for name in sorted(names):
        writer.write_rollouts(name, [], compress=name == "step_000002")
    found = rollout_files(writer.path)
    assert [file.name.split(".")[0] for file in found] == names
    kinds = {"before": 1, "during": 1, "train": 2, "after": 1, "before_forced": 1, "eval": 0}
    assert {phase: sum(may_hold(one, phase) for one in found) for phase in kinds} == kinds
    assert Run(writer.path).metrics == Run(writer.path).alarms == []  # nothing is written yet
    row = {"phase": "after", "step": 40, "rollout_id": "eval/0/7/0"}
    assert name_rollout(row) == "after.40/eval/0/7/0"


def test_a_silent_writer_writes_nothing(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    before = {path: path.read_bytes() for path in writer.path.rglob("*") if path.is_file()}
    silent = RunWriter.reopen(writer.path, 1, is_silent=True)
    silent.log(2, {}, "train")
    silent.keep_alarms(0)
    silent.write_rollouts("step_000002", [], compress=True, keep=1)
    silent.write_summary({"steps": 2})
    silent.write_failure("x", "y")
    assert {path: path.read_bytes() for path in writer.path.rglob("*") if path.is_file()} == before


def test_alarms_after_a_step_are_dropped(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    for step in (2, 3, 4):
        writer.write_alarm({"step": step})
    RunWriter.reopen(writer.path, 2)
    assert len(Run(writer.path).alarms) == 3, "a resumed run may have heard them all"
    size = Run(writer.path).files["alarms.jsonl"]["bytes"]
    assert size == (writer.path / "alarms.jsonl").stat().st_size
    writer.keep_alarms(3)
    assert Run(writer.path).alarms == [{"step": 2}, {"step": 3}]
    writer.keep_alarms(1)
    assert Run(writer.path).alarms == []
