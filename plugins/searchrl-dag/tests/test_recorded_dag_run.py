"""The README shows the recorded run, which was made with the policy that the package brings."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

import record_dag_run as record  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from searchrl import Run  # noqa: E402
from searchrl.cli import main  # noqa: E402
from searchrl.run_folder.changes import describe_sources  # noqa: E402

RUN = Run.open(record.RECORD)
COMPARED: dict[str, Any] = json.loads((record.RECORD / "compared.json").read_text("utf-8"))


def test_the_readme_shows_it() -> None:
    assert record.render(record.RECORD) in record.README.read_text("utf-8"), (
        "run `python plugins/searchrl-dag/record_dag_run.py`"
    )


def test_the_readme_follows_the_figures(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(record.RECORD, tmp_path / "run"))
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    summary["after"]["dag"]["value"] = 0.123
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    assert "| valid plans |" in record.render(folder) and "0.123 [" in record.render(folder)


def test_it_is_the_published_reward_on_the_policy_of_the_package() -> None:
    task = RUN.config.tasks[0]
    assert task.reward == "0.5*dag_judge+0.25*dag+0.25*format" and task.env.name == "multisource"
    assert RUN.config.model.name == "searchrl_dag:assets/tiny"
    weights = describe_sources(RUN.config, {})["weights"]
    assert RUN.provenance["weights"] == weights, "train and record again: the policy is another one"


def test_it_learned_to_plan_and_to_answer() -> None:
    before, after = RUN.summary["before"], RUN.summary["after"]
    for name in ("em", "dag"):
        assert after[name]["n"] >= 256 and after[name]["low"] > before[name]["high"], name
    assert after["dag"]["value"] >= 0.90 and RUN.provenance["duration_s"] <= 600
    best = max(metric["value"] for metric in COMPARED["scripts"].values())
    assert after["em"]["value"] >= best + 0.15


def test_chains_need_the_results_of_parents() -> None:
    parents = COMPARED["without_parents"]
    assert parents["with"]["value"] >= 0.60 and parents["without"]["value"] <= 0.20


def test_its_page_draws_the_plans(tmp_path: Path) -> None:
    words = ("inspect", str(record.RECORD), "--out", str(tmp_path / "page"))
    result = CliRunner().invoke(main, ["--plugin", "searchrl_dag", *words])
    assert result.exit_code == 0, result.output
    written = "".join(file.read_text("utf-8") for file in (tmp_path / "page").rglob("*.js"))
    assert "what the plan of turn 1 found, level by level" in written
