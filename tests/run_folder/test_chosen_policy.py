"""Which weights and which checkpoint are taken when a run, a checkpoint or a policy is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchrl.errors import DamagedError
from searchrl.run_folder.checkpoints import (
    checkpoint_folders,
    clean_partial,
    newest_checkpoint,
    rotate_checkpoints,
    set_aside,
)
from searchrl.run_folder.manifest import CHECKSUMS, STATE, Manifest
from searchrl.run_folder.policies import choose_policy, is_policy_of_run, verify_policy


def write_policy(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")
    return folder


def write_checksums(folder: Path) -> None:
    Manifest.of(folder, {}).write(folder / CHECKSUMS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped after its checkpoints of steps 2 and 10."""
    run = tmp_path / "run"
    for step in (2, 10):
        folder = run / "checkpoints" / f"step_{step:06d}"
        write_policy(folder / "policy")
        Manifest.of(folder, {"step": step}).write(folder / STATE)
    (run / "config.yaml").write_text("seed: 1")
    return run


def test_the_newest_whole_weights_are_taken_and_the_choice_is_said(run: Path) -> None:
    newest, older = run / "checkpoints" / "step_000010", run / "checkpoints" / "step_000002"
    folder, (note,) = choose_policy(run) or (run, ())
    assert folder == newest / "policy"
    assert note == f"'{run}' has no final policy; its newest checkpoint is taken: {folder}"
    assert choose_policy(newest) == choose_policy(folder) == (folder, ())
    (folder / "model.safetensors").write_text("wEights")
    folder, notes = choose_policy(run) or (run, ())
    assert folder == older / "policy" and notes[-1] == f"taken instead: '{folder}'"
    assert "model.safetensors' is damaged" in notes[0] and len(notes) == 2
    for named in (newest, newest / "policy"):
        with pytest.raises(DamagedError, match=f"same run, name it: '{run}'"):
            choose_policy(named)
    # What else is in the checkpoint is no matter of its policy.
    (older / "optimizer.json").write_text("{}")
    Manifest.of(older, {}).write(older / STATE)
    (older / "optimizer.json").write_text("[]")
    assert choose_policy(older / "policy") == (older / "policy", ())
    assert not is_policy_of_run(run / "checkpoints" / "own" / "policy")
    # The final policy of a run comes first; it has checksums, or it is damaged.
    final = write_policy(run / "policy")
    assert (choose_policy(run) or (run, ()))[0] == older / "policy"
    write_checksums(final)
    assert choose_policy(run) == (final, ())


def test_weights_that_no_run_wrote_need_no_checksums_and_have_to_be_weights(tmp_path: Path) -> None:
    # By its place it is that of no checkpoint, though its folder is called as one.
    own = write_policy(tmp_path / "step_000001" / "policy")
    assert choose_policy(own) == (own, ()) and choose_policy(tmp_path) is None
    (tmp_path / "config.yaml").write_text("seed: 1")  # nor that of a run: it has another name
    mine = write_policy(tmp_path / "mine")
    assert choose_policy(mine) == (mine, ())
    write_checksums(own)
    (own / "model.safetensors").write_text("wEights")
    verify_policy(own, deep=False)
    with pytest.raises(DamagedError, match="There are no whole weights beside these"):
        choose_policy(own)
    (own / "config.json").unlink()
    write_checksums(own)
    with pytest.raises(DamagedError, match=r"neither adapter_config.json nor config.json is there"):
        choose_policy(own)


def test_a_run_goes_on_from_its_newest_whole_checkpoint_and_keeps_the_others(run: Path) -> None:
    newest, older = run / "checkpoints" / "step_000010", run / "checkpoints" / "step_000002"
    (newest / "policy" / "model.safetensors").write_text("wEights")
    assert newest_checkpoint(run, deep=False) == (newest, ())
    folder, (fault,) = newest_checkpoint(run)
    assert folder == older and "is damaged" in fault
    for path in (
        newest.with_name(f"{newest.name}.damaged"),
        run / ".x.partial",
        older / "y.partial",
    ):
        path.mkdir()
    assert set_aside(newest) == newest.with_name("step_000010.damaged1")
    clean_partial(run)
    assert checkpoint_folders(run) == [older] and not list(run.rglob("*.partial"))


def test_only_what_is_older_than_the_newest_few_and_not_the_best_is_removed(run: Path) -> None:
    def left(keep_last: int, best: str | None = None) -> list[str]:
        rotate_checkpoints(run, keep_last, best)
        return [folder.name for folder in checkpoint_folders(run)]

    both = left(3)
    assert len(both) == 2 and left(1, best=both[0]) == both
    (run / "checkpoints" / f".{both[0]}.partial" / "inner").mkdir(parents=True)  # of a kill
    assert left(1) == [both[-1]]
    # A damaged one is not counted, and not removed.
    (run / "checkpoints" / "step_1000000").mkdir()
    assert left(1) == [both[-1], "step_1000000"]
    assert left(0, "step_000077") == ["step_1000000"]
    (run / "other").mkdir()
    (run / "other" / "checkpoints").touch()
    assert checkpoint_folders(run / "other") == []


def test_the_newest_of_many_steps_is_the_one_with_the_largest_number(run: Path) -> None:
    for name in ("step_1000000", "step_999999", "step_x"):
        (run / "checkpoints" / name).mkdir()
    assert [one.name for one in checkpoint_folders(run)] == [
        "step_000002", "step_000010", "step_999999", "step_1000000",
    ]  # fmt: skip
