"""What a reopened run keeps, and that nothing is in it twice."""

from __future__ import annotations

from pathlib import Path

from searchrl.config import build_config
from searchrl.run_folder import Run, RunWriter


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


def test_facts_that_become_known_are_added(tmp_path: Path) -> None:
    writer = written(tmp_path / "run")
    writer.update_provenance(changes=[{"what": ["the data"]}])
    RunWriter.reopen(writer.path, 4).update_provenance(rollbacks=[])
    record = Run(writer.path).provenance
    assert (record["changes"], record["rollbacks"]) == ([{"what": ["the data"]}], [])
    assert record["program"] == "train"
