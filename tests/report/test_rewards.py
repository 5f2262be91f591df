"""Other rewards on the page: what it is given, and that it is what `searchrl score` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, succeed
from stored_run import CHESS, answer, make_row, write_run
from test_folder import read_data

from searchrl.config import build_config
from searchrl.plugins import load_plugins
from searchrl.report.folder import write_report
from searchrl.report.rewards import describe_weights, list_rewarded, score_run
from searchrl.run_folder import Run, RunWriter

OTHER = "em-0.5*searches"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.open(write_run(tmp_path_factory.mktemp("rewards") / "run"))


def test_the_page_is_given_the_other_reward_of_every_rollout(run: Run, tmp_path: Path):
    again = score_run(run, run.config, load_plugins(entry_points=False), [OTHER])
    write_report([run], tmp_path / "out", [again])
    index = read_data(tmp_path / "out", "index")
    (other,) = index["again"]
    assert other == {"name": OTHER, "reward": [0, 1, 0, -0.5, 0, None, 0, 0]}
    # Its components are columns as well; those that were recorded stay as they were.
    assert index["scores"]["searches"] == [0, 0, 2, 1, 0, None, 2, 0]
    assert index["scores"]["em"] == [0, 1, 1, 0, 0, None, 1, 0]


def test_the_comparison_is_that_of_searchrl_score(run: Run, tmp_path: Path):
    succeed("inspect", run.path, "--reward", OTHER, "--out", tmp_path / "out")
    ((shown,),) = read_data(tmp_path / "out", "run")["again"]
    said = json.loads(succeed("score", run.path, "--reward", OTHER, "--json").stdout)["phases"]
    assert shown["reward"] == OTHER and shown["phases"].keys() == said.keys()
    for phase, told in said.items():
        one = shown["phases"][phase]
        for key in ("n", "kendall_tau", "spearman_rho", "group_tau", "groups", "best_differs"):
            assert one[key] == told[key], (phase, key)
    train = shown["phases"]["train"]
    assert (train["n"], train["unscored"][1]) == (3, 1)
    assert train["first"]["value"] == pytest.approx(4 / 3)
    # It answered at once: as bad as another by the recorded reward, and now among the best.
    (found,) = train["disagreements"]
    sides = [(found[side]["reward"], found[side]["rank"]) for side in ("first", "second")]
    assert found["rollout"] == "train.1/step0/p0/2" and sides == [(1.0, 0.25), (0.0, 0.75)]


def test_several_rewards_and_runs_stand_beside_each_other(run: Run, tmp_path: Path):
    other = write_run(
        tmp_path / "other", {"step_000001": [make_row("s/p/0", CHESS, [answer("x")])]}
    )
    flags = ("--reward", "em", "--reward", "f1", "--compare", other, "--out", tmp_path / "out")
    succeed("inspect", run.path, *flags)
    index = read_data(tmp_path / "out", "index")
    assert [one["name"] for one in index["again"]] == ["em", "f1"]
    assert [len(one["reward"]) for one in index["again"]] == [9, 9]
    of_runs = read_data(tmp_path / "out", "run")["again"]
    assert [[one["reward"] for one in again] for again in of_runs] == [["em", "f1"]] * 2


def test_what_a_reward_cannot_score_is_said(run: Run, tmp_path: Path):
    flags = ("--reward", "signal:depth", "--out", tmp_path / "out")
    assert "unknown" in complaint("inspect", run.path, *flags)
    assert not (tmp_path / "out").exists()
    said = succeed("inspect", run.path, "--reward", "em", "--out", tmp_path / "out").stdout
    assert "note: em: 1 of 8 rollouts have no score: retriever failure of" in said


def test_without_another_reward_nothing_is_scored(run: Run, tmp_path: Path):
    succeed("inspect", run.path, "--out", tmp_path / "out")
    assert read_data(tmp_path / "out", "index")["again"] == []
    assert read_data(tmp_path / "out", "run")["again"] == []


@pytest.mark.parametrize(
    ("reward", "weights", "names"),
    [
        ("0.2*format+em-1", {"format": 0.2, "em": 1.0}, ["format", "em"]),
        ({0: "format", 1: "em"}, {"em": 1.0}, ["format", "em"]),
        ("auto", None, []),
        ("format+", None, []),
    ],
)
def test_the_weights_are_those_of_the_last_steps(
    reward: Any, weights: dict[str, float] | None, names: list[str], tmp_path: Path
):
    run = Run(RunWriter.create(build_config({"reward": reward}), tmp_path / "run").path)
    told = describe_weights(run)
    assert (told and told["weights"]) == weights and list_rewarded(run) == names
    assert told is None or told["constant"] == (-1.0 if reward == "0.2*format+em-1" else 0.0)
