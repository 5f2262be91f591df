"""Resuming a damaged run: the newest whole checkpoint is taken and said, and nothing is lost."""

import shutil
from pathlib import Path

import pytest
from damage import DAMAGES, flip, without_overrides
from train_toy import Crash, PowerCut, assert_same_run, settings

from searchrl.errors import DamagedError
from searchrl.programs.train import train
from searchrl.run_folder import Run, list_checkpoints

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("threads_restored")]


@pytest.fixture(scope="module")
def cut_once(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps whose power was cut after the fifth: checkpoints 2 and 4 are there."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(PowerCut):
        train(settings(micro_model, folder), observer=Crash(5))
    return folder


@pytest.fixture
def cut_run(cut_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cut_once, tmp_path / "run"))


def newest_of(run: Path) -> Path:
    newest = list_checkpoints(run)[-1]
    assert newest.name == "step_000004"
    return newest


def resume(run: Path) -> tuple[Run, str]:
    observer = Crash()
    with without_overrides():
        done = train(resume=run, observer=observer)
    return done, "\n".join(observer.notes)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("policy/model.safetensors", "flipped"),
        ("optimizer-00001.safetensors", "truncated"),
        ("policy/tokenizer.json", "missing"),
        ("state.json", "folder"),
    ],
)
def test_an_older_checkpoint_is_taken_and_the_run_ends_the_same(
    whole_run: Run, cut_run: Path, file: str, damage: str
):
    newest = newest_of(cut_run)
    DAMAGES[damage](newest / file)
    run, said = resume(cut_run)
    assert f"'{newest / file}' is damaged: " in said
    assert f"kept as '{newest}.damaged'" in said
    assert f"resumed {cut_run} after step 2" in said or f"resumed {cut_run} after step 3" in said
    assert_same_run(whole_run, run)
    # What is written in its place is whole, and what was damaged is still there to look at.
    assert list_checkpoints(run.path)[-1].name == "step_000006"
    assert newest.with_name("step_000004.damaged").is_dir()


def test_without_a_whole_checkpoint_every_fault_is_named_and_nothing_is_touched(cut_run: Path):
    for checkpoint in list_checkpoints(cut_run):
        flip(checkpoint / "policy" / "model.safetensors")
    before = sorted(path for path in cut_run.rglob("*"))
    with pytest.raises(DamagedError, match="has no whole checkpoint to resume from") as caught:
        resume(cut_run)
    for checkpoint in (cut_run / "checkpoints").iterdir():
        assert f"'{checkpoint / 'policy' / 'model.safetensors'}' is damaged" in str(caught.value)
    assert sorted(path for path in cut_run.rglob("*")) == before


@pytest.mark.parametrize("damage", ["flipped", "missing", "folder"])
def test_damaged_records_are_kept_aside_and_the_weights_are_those_of_the_whole_run(
    whole_run: Run, cut_run: Path, damage: str
):
    for name in ("metrics.jsonl", "provenance.json"):
        DAMAGES[damage](cut_run / name)
    run, said = resume(cut_run)
    assert damage == "missing" or (cut_run / "provenance.json.damaged").exists()
    assert "it cannot know whether metrics.jsonl is damaged, too" in said
    if damage == "folder":  # seen without the checksum that was in the other file
        assert (cut_run / "metrics.jsonl.damaged").exists()
    assert f"'{cut_run / 'provenance.json'}' is damaged: " in said
    assert run.provenance["program"] == "train" and run.provenance["plugins"]
    assert run.summary["after"] == whole_run.summary["after"]
    steps = [row["step"] for row in run.metrics if row["phase"] == "train"]
    assert steps[-2:] == [5, 6]
