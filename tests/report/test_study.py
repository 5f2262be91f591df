"""Studies: which runs are made, when they are made again, and the table of those that are there.

Runs are copies of one that is written by hand. This file is also a program: a study of such runs.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
import yaml
from click.testing import CliRunner, Result
from stored_run import CHESS, HALL, answer, make_row

from searchrl.cli import main
from searchrl.config import build_config
from searchrl.config.study import load_study
from searchrl.programs.study import open_cells
from searchrl.run_folder import RunWriter
from searchrl.runs.study import remarks, tabulate

STUDY = {"base": {"env": "regulations"}, "arms": {"a": {}, "b": {"optim": {"lr": 1e-3}}}}
STUDY |= {"seeds": [0, 1], "steps": 2}
CONFIG = {"env": "regulations", "reward": "em", "protocol": "inline", "retriever": "bm25"}
MORE = ("more", "More?", (), ["yes"])
RUN = """
import fcntl, os, shutil, sys, time
folder = sys.argv[1]
os.makedirs(folder)
lock = open(folder + "/.lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print(folder[10:], file=open("made.txt", "a"))
if "/b/" in folder and os.path.exists("fail"):
    sys.exit(3)
while "/b/" in folder and os.path.exists("stay"):
    time.sleep(0.05)
shutil.copytree("ready", folder, dirs_exist_ok=True)
"""
POPEN = subprocess.Popen


def finish(folder: Path, tasks: list[float], steps: list[tuple[int, float]]) -> None:
    """Write a run with these figures of tasks after training, and (tokens, figure) of its steps."""
    rows = [
        make_row(f"eval/0/{task[0]}", task, [answer("x")], phase="after", scores={"em": value})
        for task, value in zip((CHESS, HALL, MORE), tasks, strict=False)
    ]
    writer = RunWriter.create(build_config(CONFIG), folder)
    writer.write_provenance([], seed=0)
    writer.write_rollouts("eval_after", rows, compress=False)
    before = [row | {"phase": "before"} for row in rows]
    writer.write_rollouts("eval_before", before, compress=False)
    for step, (tokens, em) in enumerate(steps, 1):
        exact = {"em": em, "turns": 2.0, "sampled_tokens": tokens, "dead_groups": 0.5}
        writer.log(step, {name: {"value": one, "n": 1} for name, one in exact.items()}, "train")
    writer.write_summary({"steps": 2, "before": {}, "after": {}})


def stand_in(words: list[str], **more: object) -> subprocess.Popen[bytes]:
    return POPEN([sys.executable, "-c", RUN, words[-1]], **more)  # type: ignore[call-overload, no-any-return]


def write(folder: Path, **changes: object) -> Path:
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(STUDY | changes, sort_keys=False), "utf-8")
    return file


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["study", *map(str, words)])


def made() -> list[str]:
    return Path("made.txt").read_text().split() if Path("made.txt").exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    finish(tmp_path / "ready", [0.0, 1.0], [(100, 0.0), (200, 1.0)])
    monkeypatch.setattr("searchrl.programs.study.subprocess.Popen", stand_in)
    return tmp_path


def test_the_table_is_that_of_hand_computed_pairs(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, seeds=[0, 1, 2], tried={"b": 3}))
    cells = open_cells(study, tmp_path / "out")
    figures = {"a": [[0, 1], [1, 1], [0, 0]], "b": [[1, 1], [1, 1, 0], [1, 0]]}
    for cell in cells:
        tokens = 50 if cell.seed else 100
        finish(cell.folder, figures[cell.arm][cell.seed], [(tokens, 0.0), (200, 1.0)])
    a, b = tabulate(cells, "em")
    assert a.figure == pytest.approx({"value": 0.5, "low": -0.74207, "high": 1.74207, "n": 3}, 1e-4)
    assert b.figure and b.figure["value"] == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    # By seed, on the tasks of both: 1/2, 0, 1/2; Student's t of 2 degrees is 4.3027.
    half = 4.30265 * 0.288675 / 3**0.5
    ends = {"value": 1 / 3, "low": 1 / 3 - half, "high": 1 / 3 + half, "n": 3}
    assert a.difference is None and b.difference == pytest.approx(ends, 1e-4)
    assert (a.costs["sampled_tokens"], a.costs["dead_groups"]) == (200, 0.5)
    # In the first 100 tokens: 0 of one seed, and 1/2 of each other.
    assert a.curve[0] == (100, pytest.approx(ends, 1e-4)) and a.curve[1][1]["value"] == 1
    wide, unequal = remarks([a, b], study.tried)
    assert f"{half:.3f}" in wide and "tried: a 1, b 3" in unequal


def test_a_killed_study_goes_on_with_what_is_left(place: Path) -> None:
    study = POPEN([sys.executable, __file__, str(write(place))])
    (place / "stay").touch()  # for the second run, which the study leaves behind
    Timer(20, lambda: (place / "stay").unlink(missing_ok=True)).start()
    while len(made()) < 2:
        time.sleep(0.05)
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    Timer(1, (place / "stay").unlink).start()
    assert call(write(place)).exit_code == 0
    assert sorted(made()) == ["a/seed-0", "a/seed-1", "b/seed-0", "b/seed-1"]
    assert call(write(place)).exit_code == 0 and len(made()) == 4


def test_arms_and_seeds_are_added_and_not_changed(place: Path) -> None:
    assert "one seed shows no difference" in call(write(place, seeds=[0])).stdout
    file = write(place, arms=STUDY["arms"] | {"c": {"algorithm": "rloo"}})  # type: ignore[operator]
    told, config = call(file, "--commands").stdout.splitlines(), "runs/mine/c/seed-0"
    assert len(told) == 4 and len(made()) == 2
    assert told[0] == f"searchrl train --config {config}.yaml --run-dir {config}"
    assert "not finished: 4" in call("show", file).stdout
    assert call(file).exit_code == 0
    assert made()[2:] == ["c/seed-0", "a/seed-1", "b/seed-1", "c/seed-1"]
    for change in ({"base": {"env": "facts"}}, {"steps": 3}):
        refused = call("show", write(place, **change))
        assert refused.exit_code == 2 and "a/seed-0.yaml" in refused.stderr, refused.output


def test_failed_runs_are_counted_and_tried_again(place: Path) -> None:
    (place / "fail").touch()
    for status, shares in ((1, [0, 1]), (0, [0, 0])):
        result = call(write(place), "--json", "--jobs", "2")
        assert result.exit_code == status
        assert [arm["failed"] for arm in json.loads(result.stdout)["arms"]] == shares
        (place / "fail").unlink(missing_ok=True)
    assert call("show", write(place), "--out", "page").exit_code == 0
    index = (place / "page" / "data" / "index.js").read_text()
    assert "after" in index and "before" not in index, "of many runs, what each has learned"
    assert (place / "page" / "data" / "em.svg").read_text().count("<polygon") == 2


def test_a_bad_file_is_told(tmp_path: Path) -> None:
    for words, changes in {
        "unknown key 'step'. Did you mean 'steps'?": {"step": 3},
        "arm 'a/b' names a folder": {"arms": {"a/b": {}}},
        "steps, sampled_tokens, episodes; it names none": {"steps": None},
        "it names steps and episodes": {"episodes": 3},
        "arm 'b': the configuration is not valid": {"arms": {"b": {"optim": {"rl": 1}}}},
        "arm 'b' has the settings of 'a'": {"arms": {"a": {}, "b": {"seed": 3}}},
        "optim.schedule = cosine ends with the last step": {
            "steps": None,
            "episodes": 9,
            "arms": {"a": {"optim": {"schedule": "cosine"}}},
        },
        "tried: no arm 'c'. Known: a, b.": {"tried": {"c": 2}},
    }.items():
        result = call("show", write(tmp_path, **changes))
        assert result.exit_code == 2 and words in result.stderr, result.output


if __name__ == "__main__":
    subprocess.Popen = stand_in  # type: ignore[assignment, misc]
    main(["study", *sys.argv[1:]])
