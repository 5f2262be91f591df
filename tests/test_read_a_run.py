"""The page that reads two runs: its figures, what it says of them, and its pictures.

`python docs/record_run.py RUN --collapsed` makes a run the collapsed one, `docs/shoot_pages.py`
takes the pictures.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from searchrl.report.folder import write_report
from searchrl.run_folder import Run, find_damage

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "docs"))
sys.path.insert(0, str(REPO / "tests" / "report"))

import keep_run  # noqa: E402
import record_run  # noqa: E402
import shoot_pages  # noqa: E402
import two_runs  # noqa: E402
from recorded import COLLAPSED, RECORD, Recorded  # noqa: E402

HEALTHY, BROKEN = Recorded(), Recorded(COLLAPSED)
PAGE = two_runs.PAGE.read_text("utf-8")


def test_every_figure_of_the_page_is_that_of_the_two_runs() -> None:
    assert two_runs.render(HEALTHY, BROKEN)[two_runs.PAGE] == PAGE, "run docs/record_run.py"
    found = re.findall(r"<!-- recorded: (\w+) -->", PAGE)
    assert sorted(found) == sorted(two_runs.BLOCKS)
    by_hand = re.sub(r"<!-- recorded: \w+ -->.*?<!-- end -->", "", PAGE, flags=re.DOTALL)
    assert not re.findall(r"(?<![\d.])[01]\.\d{3}\b", by_hand)


def test_the_two_runs_differ_in_the_reward_alone(tmp_path: Path) -> None:
    flags, apart = record_run.flags_apart(HEALTHY.config, Run.open(COLLAPSED))
    assert flags == {"--reward": "format+em-searches"} and not apart
    folder = Path(shutil.copytree(COLLAPSED, tmp_path / "run"))
    config = (folder / "config.yaml").read_text("utf-8")
    (folder / "config.yaml").write_text(config.replace("\nseed: 0\n", "\nseed: 3\n"), "utf-8")
    with pytest.raises(SystemExit, match="it differs in --seed, --reward"):
        record_run.record_collapsed(Run.open(folder), "a machine")


def test_the_curves_and_alarms_are_as_the_page_says() -> None:
    train, healthy = BROKEN.of_phase("train"), HEALTHY.of_phase("train")
    first, last = train[1], train[BROKEN.max_steps]
    assert last["reward"]["value"] > first["reward"]["value"]
    assert last["searched"]["value"] == 0 and last["em"]["value"] <= 0.05 < first["em"]["value"]
    assert BROKEN.after["em_forced"]["low"] > BROKEN.after["em"]["high"]
    for key in ("reward", "em", "searched"):
        assert healthy[HEALTHY.max_steps][key]["value"] > healthy[1][key]["high"]
    assert HEALTHY.alarms == [] and BROKEN.alarms[0]["alarm"] == "search_collapse"


@pytest.mark.parametrize("folder", [RECORD, COLLAPSED], ids=lambda folder: folder.name)
def test_what_is_kept_is_a_run_folder_that_can_be_inspected(folder: Path, tmp_path: Path) -> None:
    assert find_damage(folder) == []
    report = write_report([Run.open(folder)], tmp_path / "report")
    num_steps = len(keep_run.kept_steps(Run.open(folder)))
    assert report.notes == ()
    assert report.num_rollouts == 64 * num_steps + 2 * keep_run.NUM_TASKS
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 300_000


def test_every_picture_is_small_and_shown_with_words() -> None:
    pictures = {path.stem: path.read_bytes() for path in shoot_pages.PICTURES.iterdir()}
    assert pictures.keys() == shoot_pages.SHOTS.keys()
    assert all(len(data) <= 150_000 for data in pictures.values())
    shown = re.findall(
        r"!\[([^\]]{30,})\]\(\S*pages/(\w+)\.webp\)", PAGE + (REPO / "README.md").read_text("utf-8")
    )
    assert {name for _, name in shown} == pictures.keys()
