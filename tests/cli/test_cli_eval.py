"""`searchrl eval`: JSON for machines, a table for people, episodes on request."""

from __future__ import annotations

import json
import shutil
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
    wanted = {
        "em",
        "searched",
        "searches",
        "format",
        "passive",
        "support_recall",
        "all_gold",
        "reward",
    }
    assert wanted <= set(metrics)
    assert {"em/lookup", "em/two_hop", "em/not_regulated"} <= set(metrics)
    for metric in metrics.values():
        assert {"value", "n"} <= set(metric) <= {"value", "low", "high", "n"}
    assert metrics["em"]["value"] == 1.0 and metrics["em"]["n"] == 12


def test_model_eval_reports_the_forced_figures_too(micro_model: Path) -> None:
    flags = ["--model", str(micro_model), "--num-tasks", "2", "--json"]
    flags += ["--set", "rollout.max_turn_tokens=8"]
    result = succeed("eval", "--env", "regulations", *flags)
    assert "em_forced" in json.loads(result.stdout)
    result = call("eval", "--env", "regulations", *flags, "--no-forced")
    assert "em_forced" not in json.loads(result.stdout)


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


class TestFailedEpisodes:
    """If too many episodes failed, the metrics of the others mean nothing: eval ends."""

    @pytest.fixture
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "temporary"
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        return folder

    def flags(self, folder: Path, every: int) -> list[str]:
        plugin = folder / "broken_reward.py"
        plugin.write_text(BROKEN_REWARD.format(every=every))
        return [*SCRIPTED, "--plugin", str(plugin), "--reward", "em+broken", "--json"]

    def test_a_few_are_said_and_left_out(self, tmp_path: Path, temporary: Path) -> None:
        result = call(*self.flags(tmp_path, every=6))
        assert result.exit_code == 0, result.output
        (file,) = temporary.iterdir()
        said = result.stderr.replace("\n", "")
        assert "split 'test': 2 of 12 episodes failed and are left out; scoring failure" in said
        assert "of reward 'broken' of plugin broken_reward" in said and str(file) in said
        assert file.read_text().count("Traceback") == 2
        assert json.loads(result.stdout)["em"]["n"] == 10

    def test_too_many_end_it_with_the_tracebacks_saved(self, tmp_path: Path, temporary: Path):
        result = call(*self.flags(tmp_path, every=2))
        assert result.exit_code == 3, result.output
        (file,) = temporary.iterdir()
        assert "evaluation stopped at split 'test': 6 of 12 episodes failed" in result.stderr
        assert "limit: rollout.max_failure_frac=0.2" in result.stderr
        assert f"Tracebacks: {file}" in result.stderr and "KeyError: 'gold'" in file.read_text()
        assert result.stdout == ""
        more = ["--set", "rollout.max_failure_frac=0.5"]
        assert call(*self.flags(tmp_path, every=2), *more).exit_code == 0


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
        if len(steps) == 60:
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


@pytest.mark.parametrize(
    "command", [["ask", "{run}", "Who?"], ["eval", "{run}"], ["eval", "--against", "{run}"]]
)
def test_a_command_that_reads_a_run_names_its_damaged_files(
    micro_run: Path, tmp_path: Path, command: list[str]
) -> None:
    damaged = shutil.copytree(micro_run, tmp_path / "damaged")
    file = damaged / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-40] + b"}\n")
    flags = ["--num-tasks", "1"] if command[0] == "eval" else []
    words = [one.format(run=damaged) for one in command]
    if "--against" in words:
        words[1:1] = [str(micro_run)]
    assert "metrics.jsonl" in call(*words, *flags).output
