"""A policy of choices that collapses is named, by the run itself; a healthy one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl import Run, train
from searchrl.alarms.choices import ActionCollapse
from searchrl.alarms.episode import Truncation
from searchrl.core.alert import Severity
from searchrl.core.history import History
from searchrl.testing import make_history

FIXTURES = Path(__file__).parents[1] / "fixtures"
SETTINGS: dict[str, Any] = {
    "env": "arms",
    "plugins": [str(FIXTURES / "arms.py"), str(FIXTURES / "driven.py")],
    "algorithm": {"beta": 0},
    "rollout": {"prompts_per_step": 4, "group_size": 8},
    "eval": {"num_tasks": 2, "every": 0},
    "max_steps": 3,
}


def curves(**values: list[float]) -> History:
    """Curves whose names have a slash in place of two underscores."""
    return make_history(**{name.replace("__", "/"): of for name, of in values.items()})


def run_with(folder: Path, push: float) -> Run:
    policy = {"name": "driven", "action": "left", "push": push}
    return train({**SETTINGS, "policy": policy, "run_dir": str(folder)})


def test_an_action_that_takes_all_choices_is_named() -> None:
    shares = {"free_action__Terminate": [0.5, 0.98, 0.99, 1.0], "free_action__Search": [0.5] * 4}
    alert = ActionCollapse().check(curves(**shares))
    assert alert is not None and alert.since == 2 and alert.severity is Severity.CRITICAL
    assert "'Terminate' in 100 % of the choices" in alert.what
    assert ActionCollapse().check(curves(free_action__Terminate=[0.5, 0.97, 0.99, 1.0])) is None
    assert ActionCollapse(max_share=0.9).check(curves(free_action__x=[0.95] * 3)) is not None


def test_while_the_reward_rises_it_is_a_warning() -> None:
    rises = [0.1, 0.1, 0.1, *(0.1 * step for step in range(3, 11))]
    alert = ActionCollapse().check(curves(reward=rises, free_action__x=[0.99] * 11))
    assert alert is not None and alert.severity is Severity.WARNING


def test_a_legal_action_without_probability_is_told() -> None:
    alert = ActionCollapse().check(curves(least_action_p=[1e-30, 0.0, 0.0, 0.0]))
    assert alert is not None and alert.since == 2
    assert "a legal action has probability 0" in alert.what
    assert ActionCollapse().check(curves(least_action_p=[1e-30] * 9)) is None
    assert ActionCollapse(min_probability=1e-6).check(curves(least_action_p=[1e-7] * 3)) is not None


def test_forced_choices_do_not_count() -> None:
    """All choices of an episode of one step are its first one, which the mask forces."""
    assert ActionCollapse().check(curves(action__Search=[1.0] * 9)) is None


def test_of_a_mixture_it_names_the_task() -> None:
    history = History(tasks=("a", "b"))
    for step in range(1, 4):
        history.add(step, "train", {"b/free_action/Stop": {"value": 1.0}})
    alert = ActionCollapse().check(history)
    assert alert is not None and "policy of task 'b' chooses 'Stop'" in alert.what


def test_choices_that_are_used_up_are_no_truncation() -> None:
    assert Truncation().check(curves(truncated=[0.9] * 9)) is not None
    assert Truncation().check(curves(truncated=[0.9] * 9, action__Search=[0.2] * 9)) is None


def test_a_planted_collapse_raises_the_alarm(tmp_path: Path) -> None:
    """So far up that the others cannot be drawn any more."""
    run = run_with(tmp_path / "run", 200.0)
    (alarm,) = [one for one in run.alarms if one["alarm"] != "dead_groups"]
    assert (alarm["alarm"], alarm["since"], alarm["step"]) == ("action_collapse", 1, 3)
    assert "'left' in 100 % of the choices" in alarm["what"] and alarm["severity"] == "critical"
    rows = [row for row in run.metrics if row["phase"] == "train"]
    assert {row["least_action_p"] for row in rows} == {0.0}


def test_a_healthy_run_is_silent_and_states_that_nothing_collapsed(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 0.0)
    assert run.alarms == []
    names = ("look", "left", "right")
    for row in run.metrics:
        assert row["least_action_p"] > 0
        assert sum(row[f"action/{name}"] for name in names) == pytest.approx(1)
        shares = [row[f"free_action/{name}"] for name in names]
        assert sum(shares) == pytest.approx(1)
        assert max(shares) < 0.98 or row["phase"] != "train"
    summary = run.summary["after"]
    assert summary["free_action/left"]["n"] and summary["least_action_p"]["value"] > 0
