"""The front pages show one recorded run: its files, the pages and the pictures agree.

`python docs/record_run.py RUN` makes a run the recorded one; docs/recorded_run/ holds its files.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import searchrl
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.plugins import load_plugins
from searchrl.programs.setup.planning import plan_run
from searchrl.run_folder import Run

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "docs"))

import keep_run  # noqa: E402
import learning_curve  # noqa: E402
import record_run  # noqa: E402
import recorded_pages  # noqa: E402
from recorded import COLLAPSED, RECORD, Recorded  # noqa: E402

RUN = Recorded()
RENDERED = recorded_pages.render(RUN)
MAIN_COMMAND = {"env": "regulations", "reward": "format+em", "model": "tiny"}
AGAIN = "record the run again: see docs/record_run.py"


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.name)
def test_pages_and_pictures_are_those_of_the_recorded_run(path: Path) -> None:
    assert path.read_text("utf-8") == RENDERED[path], "run `python docs/record_run.py`"


def test_every_block_stands_in_a_page() -> None:
    texts = [page.read_text("utf-8") for page in recorded_pages.PAGES]
    found = [name for text in texts for name in re.findall(r"<!-- recorded: (\w+) -->", text)]
    assert sorted(found) == sorted(recorded_pages.BLOCKS)
    assert sum(text.count("<!-- end -->") for text in texts) == len(found)


@pytest.mark.parametrize("page", recorded_pages.PAGES, ids=lambda path: path.name)
def test_no_figure_of_a_run_is_written_by_hand(page: Path) -> None:
    by_hand = re.sub(
        r"<!-- recorded: \w+ -->.*?<!-- end -->", "", page.read_text("utf-8"), flags=re.DOTALL
    )
    assert not re.findall(r"(?<![\d.])[01]\.\d{3}\b", by_hand)


def test_the_summary_has_the_figures_of_the_evaluations() -> None:
    for label, metrics in (("before", RUN.before), ("after", RUN.after)):
        assert RUN.summary[label].items() <= metrics.items()
    assert RUN.summary["steps"] == len(RUN.of_phase("train")) == RUN.config["max_steps"]
    sizes = {one["metrics"]["em"]["n"] for one in RUN.heuristics.values()}
    assert sizes == {RUN.after["em"]["n"]} and RUN.after["em"]["n"] >= 256


def test_pages_follow_the_figures(tmp_path: Path) -> None:
    """What would show if a block were fixed text."""
    folder = Path(shutil.copytree(RECORD, tmp_path / "record"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["metrics"]["em"] |= {"value": 0.4321, "low": 0.4111, "high": 0.4555}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    policies = json.loads((folder / "heuristics.json").read_text())
    for one in policies.values():
        one["metrics"]["em"] |= {"value": 0.2222, "low": 0.2, "high": 0.3}
    (folder / "heuristics.json").write_text(json.dumps(policies))
    changed = Recorded(folder)
    for name in ("front", "table"):
        assert "0.432" in recorded_pages.BLOCKS[name](changed), name
        assert "0.432" not in recorded_pages.BLOCKS[name](RUN), name
    assert "0.432" in recorded_pages.controls(changed)
    assert "0.222" in recorded_pages.scores(changed)
    picture = recorded_pages.draw_curve(recorded_pages.make_curve(changed))
    assert picture.count(" 0.22</text>") == len(policies)


@pytest.mark.parametrize("folder", [RECORD, COLLAPSED], ids=lambda folder: folder.name)
def test_no_recorded_file_names_a_machine(folder: Path) -> None:
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        assert not re.findall(r"(?<![\w.:/])/(?!/)[a-z]+/|file://", _without_tags(text)), path.name


def _without_tags(text: str) -> str:
    return re.sub(r"</?\w+>", "", text)


def test_the_recorded_run_is_that_of_todays_command_and_weights() -> None:
    """Figures of another model or recipe would be a promise that nobody keeps."""
    today = name_defaults(plan_run(MAIN_COMMAND).config, load_plugins()).to_dict()
    apart = record_run.difference(RUN.config | {"seed": today["seed"]}, today)
    assert not apart, f"{AGAIN}; these settings are others now: {apart}"
    digest = sha256(record_run.WEIGHTS.read_bytes()).hexdigest()
    assert RUN.record["weights_sha256"] == digest, f"{AGAIN}; the weights are others now"


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUN.heuristics)
def test_the_scripted_policies_score_what_is_recorded(name: str) -> None:
    result = searchrl.evaluate(RUN.config | {"policy": f"scripted:{name}"})
    assert result.metrics["em"] == RUN.heuristics[name]["metrics"]["em"], AGAIN


def test_a_difference_in_the_recipe_is_named() -> None:
    other = json.loads(json.dumps(RUN.config))
    other["optim"] |= {"lr": 0.5, "max_grad_norm": 99.0}
    other["new_section"] = {"key": 1}
    assert record_run.difference(RUN.config, other) == ["optim.max_grad_norm"]


def test_paths_of_a_machine_become_names(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    value: Any = {
        "command": ["/opt/venv/bin/searchrl", "train", "--run-dir", str(folder)],
        "platform": "Linux-6.1-secret-x86_64-with-glibc2.36",
        "installed_from": "file:///home/someone/clone",
        "file": "/home/someone/clone/searchrl/plugins/builtins.py",
        "policy": str(folder / "policy"),
        "ask": f'searchrl ask {folder} "…"',
        "seed": 3,
    }
    assert keep_run.without_paths(value, folder, "runs/first") == {
        "command": ["searchrl", "train", "--run-dir", "runs/first"],
        "platform": "Linux x86_64",
        "installed_from": ".",
        "file": "searchrl/plugins/builtins.py",
        "policy": "runs/first/policy",
        "ask": 'searchrl ask runs/first "…"',
        "seed": 3,
    }


def test_labels_keep_their_distance_and_their_order() -> None:
    places = learning_curve.spread([62.0, 63.0, 100.0, 101.0, 300.0], 17.0)
    assert places == [54.0, 71.0, 92.0, 109.0, 300.0]


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("max_steps: 3\n", "utf-8")
    with pytest.raises(SystemExit, match="has not finished"):
        record_run.record(Run.open(tmp_path), "a machine")


@pytest.mark.thorough
def test_a_run_is_recorded_from_its_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(record_run, "RECORD", tmp_path / "record")
    rollout = {"prompts_per_step": 2, "group_size": 2}
    small = {"rollout": rollout, "max_steps": 2, "eval": {"num_tasks": 12, "num_tasks_during": 2}}
    runs = [
        searchrl.train(MAIN_COMMAND | small | {"seed": seed, "run_dir": str(tmp_path / str(seed))})
        for seed in (0, 1)
    ]
    record_run.record(runs[0], "a machine", 61.0)
    record_run.add_others(runs[1:])
    with pytest.raises(SystemExit, match="no control"):
        record_run.add_others(runs[:1])
    made = Recorded(tmp_path / "record")
    assert {file.name for file in made.folder.iterdir()} == {f.name for f in RECORD.iterdir()}
    texts = [file.read_bytes() for file in made.folder.rglob("*") if file.is_file()]
    assert str(tmp_path).encode() not in b"".join(texts)
    assert made.before["em"] == runs[0].summary["before"]["em"]
    assert [one["flags"] for one in made.controls["runs"]] == ["--seed 1"]
    assert set(made.heuristics) == set(RUN.heuristics)
    pages = recorded_pages.render(made)
    assert "That took 1 min 1 s on a machine" in pages[REPO / "README.md"]
    assert made.episodes[0]["task"] == made.episodes[1]["task"]
