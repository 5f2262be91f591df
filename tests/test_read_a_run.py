"""docs/how-to/read-a-run.md: its two runs, what it says of them, and its pictures.

`python docs/record_run.py RUN --collapsed` makes a run the collapsed one, `docs/shoot_pages.py`
takes the pictures.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from searchrl.report.folder import write_report
from searchrl.run_folder import Run, find_damage

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "docs"))
sys.path.insert(0, str(REPO / "tests" / "report"))

import browser  # noqa: E402
import keep_run  # noqa: E402
import record_run  # noqa: E402
import shoot_pages  # noqa: E402
import two_runs  # noqa: E402
from recorded import COLLAPSED, RECORD, Recorded  # noqa: E402
from shoot_pages import PICTURES, SHOTS  # noqa: E402

HEALTHY, BROKEN = Recorded(), Recorded(COLLAPSED)
PAGE = two_runs.PAGE.read_text("utf-8")
FOLDERS = pytest.mark.parametrize("folder", [RECORD, COLLAPSED], ids=lambda folder: folder.name)


def rollout(run: Recorded, name: str) -> dict[str, Any]:
    """A rollout by its name on the page: `train.1/step000001/prompt0/2`."""
    (row,) = [r for r in run.rollouts if f"{r['phase']}.{r['step']}/{r['rollout_id']}" == name]
    return row


# --- figures -------------------------------------------------------------------------------
def test_the_page_is_that_of_the_two_runs() -> None:
    assert two_runs.render(HEALTHY, BROKEN)[two_runs.PAGE] == PAGE, "run docs/record_run.py"


def test_every_block_stands_in_the_page() -> None:
    found = re.findall(r"<!-- recorded: (\w+) -->", PAGE)
    assert sorted(found) == sorted(two_runs.BLOCKS)
    assert PAGE.count("<!-- end -->") == len(found)


def test_no_figure_of_a_run_is_written_by_hand() -> None:
    by_hand = re.sub(r"<!-- recorded: \w+ -->.*?<!-- end -->", "", PAGE, flags=re.DOTALL)
    assert not re.findall(r"(?<![\d.])[01]\.\d{3}\b", by_hand)


def test_the_two_runs_differ_in_the_reward_alone() -> None:
    flags, apart = record_run.flags_apart(HEALTHY.config, Run.open(COLLAPSED))
    assert flags == {"--reward": "format+em-searches"} and not apart
    assert HEALTHY.record["weights_sha256"] == BROKEN.record["weights_sha256"]


# --- what the text says --------------------------------------------------------------------
def test_the_reward_rises_while_the_agent_stops_searching_and_answering() -> None:
    train = BROKEN.of_phase("train")
    first, last = train[1], train[BROKEN.max_steps]
    assert last["reward"]["value"] > first["reward"]["value"]
    assert first["em"]["value"] > 0.1 and first["searched"]["value"] > 0.1
    for metrics in (last, BROKEN.after):
        assert metrics["em"]["value"] == metrics["searched"]["value"] == 0
    assert BROKEN.after["em_forced"]["low"] > BROKEN.after["em"]["high"]


def test_in_the_healthy_run_all_three_rise() -> None:
    train = HEALTHY.of_phase("train")
    for key in ("reward", "em", "searched"):
        assert train[HEALTHY.max_steps][key]["value"] > train[1][key]["high"]
    assert HEALTHY.after["em"]["low"] > HEALTHY.before["em"]["high"]


def test_alarms_sound_in_the_collapsed_run_alone() -> None:
    assert HEALTHY.alarms == []
    (alarm, *_) = BROKEN.alarms
    assert alarm["alarm"] == "search_collapse" and alarm["since"] < alarm["step"]


def test_both_runs_played_the_same_first_step() -> None:
    ours, theirs = (
        [row["ids"] for row in run.rollouts if row["phase"] == "train" and row["step"] == 1]
        for run in (HEALTHY, BROKEN)
    )
    assert len(ours) == 64 and ours == theirs


def test_of_the_group_that_is_shown_the_right_ones_gain_here_and_lose_there() -> None:
    for run, sign in ((HEALTHY, 1), (BROKEN, -1)):
        rows = [row for row in run.rollouts if row["group_id"] == two_runs.GROUP]
        right = [row["advantage"] for row in rows if row["scores"]["em"]]
        wrong = [row["advantage"] for row in rows if not row["scores"]["em"]]
        assert right and wrong
        assert min(sign * one for one in right) > 0 > max(sign * one for one in wrong)


def test_the_rollouts_that_are_shown_are_what_the_text_says() -> None:
    for run in (HEALTHY, BROKEN):
        shown = rollout(run, shoot_pages.RIGHT)
        assert shown["scores"]["searches"] == 2 and shown["scores"]["em"] == 1
        assert shown["scores"]["all_gold"] == 1 and shown["ratio"] is not None
        assert shown["group_id"] == two_runs.GROUP
    missed = rollout(HEALTHY, shoot_pages.MISSED)
    found = {name for turn in missed["turns"] for name in turn["passages"]}
    first, second = missed["task"]["gold_ids"]
    assert missed["scores"]["em"] == 0 and first in found and second not in found


# --- folders -------------------------------------------------------------------------------
@FOLDERS
def test_what_is_kept_is_a_run_folder_that_can_be_inspected(folder: Path, tmp_path: Path) -> None:
    assert find_damage(folder) == []
    report = write_report([Run.open(folder)], tmp_path / "report")
    num_steps = len(keep_run.kept_steps(Run.open(folder)))
    assert report.notes == ()
    assert report.num_rollouts == 64 * num_steps + 2 * keep_run.NUM_TASKS
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 300_000


def test_what_is_kept_again_is_the_same(tmp_path: Path) -> None:
    copy = tmp_path / "again"
    keep_run.keep_run(Run.open(COLLAPSED), copy, "runs/collapsed")
    kept = {file.relative_to(COLLAPSED) for file in COLLAPSED.rglob("*") if file.is_file()}
    made = {file.relative_to(copy) for file in copy.rglob("*") if file.is_file()}
    assert kept - made == {Path("record.json")} and made <= kept
    for name in made:
        # The header of gzip differs between versions of Python; what is packed does not.
        unpack = gzip.decompress if name.suffix == ".gz" else bytes
        assert unpack((copy / name).read_bytes()) == unpack((COLLAPSED / name).read_bytes()), name


def test_another_run_is_no_collapsed_one(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(COLLAPSED, tmp_path / "run"))
    config = (folder / "config.yaml").read_text("utf-8")
    (folder / "config.yaml").write_text(config.replace("\nseed: 0\n", "\nseed: 3\n"), "utf-8")
    with pytest.raises(SystemExit, match="it differs in --seed, --reward"):
        record_run.record_collapsed(Run.open(folder), "a machine")


# --- pictures ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SHOTS)
def test_a_picture_is_small_and_shown_with_words(name: str) -> None:
    data = (PICTURES / f"{name}.webp").read_bytes()
    assert data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) <= 150_000
    texts = PAGE + (REPO / "README.md").read_text("utf-8")
    (words,) = re.findall(
        rf"!\[([^\]]+)\]\((?:https:\S+/docs/)?(?:\.\./)?pages/{name}\.webp\)", texts
    )
    assert len(words.split()) > 5


def test_there_are_no_other_pictures() -> None:
    assert {path.name for path in PICTURES.iterdir()} == {f"{name}.webp" for name in SHOTS}


@pytest.mark.thorough
@pytest.mark.skipif(browser.find() is None, reason="no Chromium with chromedriver")
def test_a_picture_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shoot_pages, "PICTURES", tmp_path)
    shoot_pages.main(["retrieval"])
    assert (tmp_path / "retrieval.webp").read_bytes()[8:12] == b"WEBP"
