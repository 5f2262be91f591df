"""`searchrl forgetting` on run folders written by hand: lost, kept, gained, and a run alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from searchrl import Run
from searchrl.cli import main
from searchrl.config import build_config
from searchrl.report.folder import write_report
from searchrl.run_folder import RunWriter

Scores = Mapping[str, Sequence[float]]
"""By environment, the score of each of its tasks."""

ONES, ZEROS = (1.0,) * 20, (0.0,) * 20


def write_run(folder: Path, before: Scores, after: Scores, asks: str = "q", **more: Any) -> Path:
    """A run that recorded two evaluations; one that is empty is not written."""
    tasks = [
        {"env": name, "weight": float(place > 0 or len(after) == 1), "reward": "env"}
        for place, name in enumerate(after)
    ]
    writer = RunWriter.create(build_config({"tasks": tasks} | more), folder)
    writer.write_provenance([], seed=0)
    for phase, step, scores in (("before", 0, before), ("after", 4, after)):
        rows = [
            make_row(phase, step, env, f"eval/{place}/{index}", f"{asks}{index}", score)
            for place, (env, of_env) in enumerate(scores.items())
            for index, score in enumerate(of_env)
        ]
        if rows:
            writer.write_rollouts(f"eval_{phase}", rows, compress=True)
            writer.log(step, {"reward": {"value": 0.5, "n": len(rows)}}, phase)
    return folder


def make_row(phase: str, step: int, env: str, group: str, question: str, score: float) -> Any:
    return {
        "rollout_id": f"{group}/0", "group_id": group, "segments": [0], "origin": "sampled",
        "phase": phase, "step": step, "env": env,
        "task": {"id": group.rpartition("/")[2], "split": "test", "index": 0, "kind": "x",
                 "slices": [], "question": question, "answers": ["a"], "gold_ids": []},
        "ids": [], "authors": "", "turn": [], "policy_version": 0, "sampler_logp": [],
        "advantage": None, "turns": [], "final_answer": "a", "stop_reason": "answered",
        "reward": 2 * score, "scores": {"env": score}, "unscored": None, "failure": None,
    }  # fmt: skip


def forgetting(*words: object) -> Result:
    return CliRunner().invoke(main, ["--plugin", "searchrl_tasks", "forgetting", *map(str, words)])


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """Four tasks; the first has no weight and is lost."""
    before = {"lost": ONES, "kept": ONES, "gained": ZEROS, "few": (0.25, 0.5, 0.5)}
    half = (1.0,) * 10 + (0.0,) * 10
    after = {"lost": half, "kept": (0.0, *ONES[1:]), "gained": half, "few": (0.25, 0.75, 0.5)}
    return write_run(tmp_path / "mixture", before, after)


def test_a_task_that_lost_more_than_its_interval_is_named(mixture: Path) -> None:
    told = json.loads(forgetting(mixture, "--json").stdout)
    assert {row["env"]: row["verdict"] for row in told["tasks"]} == {
        "lost": "forgot", "kept": "no change shown", "gained": "gained", "few": "no interval",
    }  # fmt: skip
    assert told["forgotten"] == ["lost"]
    lost = told["tasks"][0]
    assert (lost["before"]["value"], lost["after"]["value"]) == (1.0, 0.5)
    # Bonett and Price: (0 + 1) / 22 and (10 + 1) / 22, half width 1.96 * sqrt(.5455 - .2066) / 4.69
    ends = lost["change"]["low"], lost["change"]["high"]
    assert ends == pytest.approx((-0.697786, -0.211305), abs=1e-5)
    result = forgetting(mixture, "--strict")
    assert "forgot lost: env -0.500 [-0.698, -0.211] over 20 tasks" in result.stdout
    assert result.exit_code == 1


def test_the_page_of_the_run_has_the_same_verdict(mixture: Path, tmp_path: Path) -> None:
    write_report([Run.open(mixture)], tmp_path / "page")
    data = (tmp_path / "page" / "data" / "run.js").read_text("utf-8")
    assert '"env":"lost"' in data and '"verdict":"forgot"' in data


def test_a_run_on_one_task_alone_stands_beside_it(mixture: Path, tmp_path: Path) -> None:
    alone = write_run(tmp_path / "alone", {}, {"gained": (*ONES[:16], *ZEROS[:4], 1.0, 1.0)})
    told = json.loads(forgetting(mixture, "--alone", alone, "--json").stdout)
    rows = {row["env"]: row for row in told["tasks"]}
    # The two tasks that the mixture was not asked do not count: 10 of 20 beside 16 of 20.
    assert rows["gained"]["alone"]["value"] == 0.8
    assert rows["gained"]["ratio"] == pytest.approx(0.625) and "ratio" not in rows["lost"]
    other = write_run(tmp_path / "other", {}, {"gained": ONES}, "other")
    assert "shares no task" in forgetting(mixture, "--alone", other).stderr


def test_a_run_that_cannot_tell_says_what_to_set(mixture: Path, tmp_path: Path) -> None:
    start = write_run(tmp_path / "start", {}, {"lost": ONES, "kept": ONES})
    assert "--before" in forgetting(start).stderr
    assert forgetting(start, "--before", mixture, "--strict").exit_code == 0
    assert "tasks.1.env" in forgetting(write_run(tmp_path / "one", {}, {"lost": ONES})).stderr
    assert "(--step): 4" in forgetting(mixture, "--step", 3).stderr
    silent = write_run(tmp_path / "silent", {}, {"lost": (), "kept": ()}, log={"rollouts": False})
    assert "log.rollouts=true" in forgetting(silent).stderr
