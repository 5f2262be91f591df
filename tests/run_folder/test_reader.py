"""Run folders by name: the run behind a checkpoint, and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.errors import RunFolderError, suggest, suggest_path
from searchrl.run_folder import Run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        checkpoint = tmp_path / "runs" / name / "checkpoints" / "step_000040"
        (checkpoint / "policy").mkdir(parents=True)
        (checkpoint / "state.json").write_text("{}")
        (tmp_path / "runs" / name / "config.yaml").write_text("seed: 3\n")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "inside", ["", "checkpoints/step_000040", "checkpoints/step_000040/policy", "policy"]
)
def test_the_run_of_a_checkpoint_is_found(runs: Path, inside: str) -> None:
    (runs / "first" / "policy").mkdir()
    for path in (Path("runs/first") / inside, runs / "first" / inside):
        found = Run.find(path)
        assert found is not None and found.path.resolve() == runs / "first"
        assert found.config.seed == 3


@pytest.mark.parametrize("name", ["runs", "runs/first/rollouts", "runs/third", "."])
def test_what_is_no_part_of_a_run_is_none(runs: Path, name: str) -> None:
    (runs / "first" / "rollouts").mkdir()
    assert Run.find(name) is None


def test_what_is_no_run_is_refused(runs: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run folder 'runs/frist'.*'runs/first'"):
        Run.open("runs/frist")
    with pytest.raises(RunFolderError, match=r"'runs' is no run folder \(it has no config.yaml\)"):
        Run.open("runs")


def test_a_missing_file_gets_near_matches_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").touch()
    assert suggest_path(tmp_path / "question.jsonl") == (
        f" Did you mean '{tmp_path / 'questions.jsonl'}'?"
    )
    assert suggest_path(tmp_path / "other.txt") == suggest_path("no/such/place") == ""


def test_a_suggestion_is_near_and_never_the_name_itself(tmp_path: Path) -> None:
    assert suggest("regulation", ("regulations", "multihop")) == " Did you mean 'regulations'?"
    assert "Did you mean" not in suggest("em", ("em", "reward"))
    (tmp_path / "questions.jsonl").symlink_to("nowhere")
    assert suggest_path(tmp_path / "questions.jsonl") == ""


def test_the_gain_is_over_the_start_that_must_search(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task 0 was searched for by itself before training, so it was not played again."""

    def row(number: int, em: float, group: str, *actions: str) -> dict[str, Any]:
        task = {"split": "test", "id": f"t{number}", "question": "?"}
        turns = [{"action": action} for action in actions]
        scores = {"em": em}
        return {"env": "a", "group_id": group, "task": task, "turns": turns, "scores": scores}

    rows = {
        "before": [
            row(0, 1.0, "eval/0/0", "search", "answer"),
            *(row(n, 0.0, f"eval/0/{n}", "answer") for n in (1, 2, 3)),
        ],
        "before_forced": [
            row(n, float(n == 1), f"eval/0/{n}/search", "search", "answer") for n in (1, 2, 3)
        ],
        "after": [row(n, float(n < 3), f"eval/0/{n}", "search", "answer") for n in range(4)],
    }
    (runs / "first" / "config.yaml").write_text("tasks: [{env: a, reward: em}]\n")
    monkeypatch.setattr(Run, "rollouts", lambda run, phase: iter(rows[phase]))
    gain = Run(runs / "first").gains()["em_gain"]
    assert (gain["value"], gain["n"]) == (0.25, 4) and gain["low"] < 0.25 < gain["high"]
    rows["before_forced"] = []
    assert Run(runs / "first").gains() == {}
