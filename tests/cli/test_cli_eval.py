"""`searchrl eval`: JSON for machines, a table for people, episodes on request."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from command_line import call, succeed

import searchrl
from searchrl.envs.regulations.env import RegulationsEnv
from searchrl.run_folder import Run

SCRIPTED = ("eval", "--env", "regulations", "--policy", "scripted", "--num-tasks", "12")


def test_json_is_the_only_thing_on_stdout() -> None:
    result = succeed(*SCRIPTED, "--json")
    metrics = json.loads(result.stdout)
    assert {"em", "searched", "passive", "support_recall", "reward", "em/two_hop"} <= set(metrics)
    for metric in metrics.values():
        assert {"value", "n"} <= set(metric) <= {"value", "low", "high", "n"}
    assert metrics["em"]["value"] == 1.0 and metrics["em"]["n"] == 12


def test_show_prints_episodes_with_tags_and_passages() -> None:
    result = call(*SCRIPTED, "--show", "1")
    for part in ("<search>", "<information>Doc 1", "<answer>", "expected", "scores"):
        assert part in result.stdout
    assert result.stdout.count("<answer>") == 1


def test_run_dir_keeps_the_episodes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = succeed(*SCRIPTED, "--reward", "env", "--run-dir", str(folder), "--json")
    rows = list(Run.open(folder).rollouts("eval"))
    assert len(rows) == 12 and all(row["scores"]["em"] == 1.0 for row in rows)
    summary = Run.open(folder).summary
    assert summary["eval"]["em"] == json.loads(result.stdout)["em"]
    assert summary.get("headline") == "env"  # `runs` told it by exact match


BROKEN_REWARD = """
from searchrl import hookimpl

class Broken:
    name, values, is_range = "broken", (0.0,), False
    def __call__(self, episode):
        if episode.task.index % {every} == 0:
            raise KeyError("gold")
        return 0.0

@hookimpl
def register_rewards(register):
    register("broken", Broken)
"""


@pytest.mark.parametrize(("every", "status"), [(6, 0), (2, 3)])
def test_many_failed_episodes_end_it_and_their_tracebacks_are_saved(
    every: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    plugin = tmp_path / "broken_reward.py"
    plugin.write_text(BROKEN_REWARD.format(every=every))
    result = call(*SCRIPTED, "--plugin", plugin, "--reward", "em+broken", "--json")
    assert result.exit_code == status, result.output
    (file,) = (tmp_path / "temporary").iterdir()
    said = result.stderr.replace("\n", "")
    assert f"{12 // every} of 12 episodes failed" in said and str(file) in said
    assert status == 0 or "rollout.max_failure_frac=0.2" in said
    assert file.read_text().count("Traceback") == 12 // every
    assert json.loads(result.stdout)["em"]["n"] == 10 if status == 0 else not result.stdout


def test_eval_of_a_run_uses_its_own_configuration(micro_run: Path) -> None:
    result = succeed("eval", str(micro_run), "--json")
    after = Run.open(micro_run).summary["after"]
    assert json.loads(result.stdout).items() >= after.items()
    assert "no run folder" in call("eval", str(micro_run.parent)).output


HALF_SCORED = """
from searchrl import hookimpl
from searchrl.contracts import Unscored
from searchrl.rewards import FunctionReward

def half(episode):
    return 1.0 if episode.task.index % 12 >= {rest} else Unscored("the server is asleep")

@hookimpl
def register_rewards(register):
    register("half", lambda: FunctionReward("half", half, (0.0, 1.0)))
"""


@pytest.mark.parametrize(("rest", "status"), [(4, 0), (12, 1)])
def test_what_could_not_be_scored_is_said_with_its_reason(
    tmp_path: Path, rest: int, status: int
) -> None:
    plugin = tmp_path / "half.py"
    plugin.write_text(HALF_SCORED.format(rest=rest))
    flags = [*SCRIPTED, "--plugin", str(plugin), "--reward", "em+half"]
    result = call(*flags, "--run-dir", tmp_path / "run")
    assert result.exit_code == status, result.output
    assert f"{rest} × reward 'half' could not score: the server is asleep" in result.stderr
    (line,) = [one for one in result.stdout.splitlines() if one.startswith("em ")]
    assert line.split()[1] == "1.000" and line.split()[-1] == "12"  # all of them
    assert len(list(Run.open(tmp_path / "run").rollouts("eval"))) == 12


def test_an_interrupted_evaluation_keeps_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = RegulationsEnv.step, []

    def stop_late(env: RegulationsEnv, action: str) -> Any:
        steps.append(action)
        if len(steps) == 100:  # in the third turns: some have ended in their second
            signal.raise_signal(signal.SIGINT)
        return step(env, action)

    monkeypatch.setattr(RegulationsEnv, "step", stop_late)
    result = call(*SCRIPTED[:-1], "40", "--run-dir", tmp_path / "run")
    assert result.exit_code == 130, result.output
    assert f"what was finished is in {tmp_path / 'run'}" in result.stderr.replace("\n", "")
    run = Run.open(tmp_path / "run")
    assert 0 < len(list(run.rollouts("eval"))) < 40 and not (run.path / "summary.json").exists()
    assert "KeyboardInterrupt" in next((run.path / "failures").iterdir()).read_text()


def test_python_shows_progress_unless_it_shall_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"policy": "scripted", "eval": {"num_tasks": 2}}
    searchrl.evaluate(settings, quiet=True)
    assert capsys.readouterr().out == ""
    searchrl.evaluate(settings)
    assert "evaluate: 2 episodes" in capsys.readouterr().out


def test_more_tasks_than_there_are_is_told() -> None:
    flags = ["eval", "--env", "corpus", "--policy", "scripted", "--num-tasks", "9"]
    assert "env 'corpus' has 5 tasks in split 'test', not 9" in succeed(*flags).stderr
