"""`searchrl eval`: JSON for machines, a table for people, episodes on request."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from searchrl.cli import main
from searchrl.run_folder import Run

SCRIPTED = ("eval", "--env", "regulations", "--policy", "scripted", "--num-tasks", "12")


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def test_json_is_the_only_thing_on_stdout() -> None:
    result = invoke(*SCRIPTED, "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.stdout)
    wanted = {"em", "searched", "searches", "format", "passive", "retrieved", "reward"}
    assert wanted <= set(metrics)
    assert {"em/lookup", "em/two_hop", "em/not_regulated"} <= set(metrics)
    for metric in metrics.values():
        assert set(metric) == {"value", "low", "high", "n"}
    assert metrics["em"]["value"] == 1.0 and metrics["em"]["n"] == 12


def test_model_eval_reports_the_forced_figures_too(micro_model: Path) -> None:
    flags = ["--model", str(micro_model), "--num-tasks", "2", "--json"]
    flags += ["--set", "rollout.max_turn_tokens=8"]
    result = invoke("eval", "--env", "regulations", *flags)
    assert result.exit_code == 0, result.output
    assert "em_forced" in json.loads(result.stdout)
    result = invoke("eval", "--env", "regulations", *flags, "--no-forced")
    assert "em_forced" not in json.loads(result.stdout)


def test_table_shows_intervals_and_counts() -> None:
    result = invoke(*SCRIPTED)
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if line.startswith("em "))
    assert row.split() == ["em", "1.000", "[0.758,", "1.000]", "12"]
    assert "\x1b" not in result.stdout


def test_show_prints_episodes_with_tags_and_passages() -> None:
    result = invoke(*SCRIPTED, "--show", "1")
    for part in ("<search>", "<information>Doc 1", "<answer>", "expected", "scores"):
        assert part in result.stdout
    assert result.stdout.count("<answer>") == 1


def test_run_dir_keeps_the_episodes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = invoke(*SCRIPTED, "--run-dir", str(folder), "--json")
    assert result.exit_code == 0, result.output
    rows = list(Run.open(folder).rollouts("eval"))
    assert len(rows) == 12 and all(row["scores"]["em"] == 1.0 for row in rows)
    assert Run.open(folder).summary["eval"]["em"] == json.loads(result.stdout)["em"]


def test_failed_episodes_are_said_on_stderr(tmp_path: Path) -> None:
    plugin = tmp_path / "broken_reward.py"
    plugin.write_text(
        "from searchrl import hookimpl\n"
        "class Broken:\n"
        "    name, values, is_range = 'broken', (0.0,), False\n"
        "    def __call__(self, episode):\n"
        "        raise KeyError('gold')\n"
        "@hookimpl\n"
        "def register_rewards(register):\n"
        "    register('broken', Broken)\n"
    )
    result = invoke(*SCRIPTED, "--plugin", str(plugin), "--reward", "em+broken", "--json")
    assert result.exit_code == 0, result.output
    assert "12 of 12 episodes failed" in result.stderr
    assert "reward 'broken' of plugin broken_reward" in result.stderr
    json.loads(result.stdout)


def test_long_observations_are_not_cut_by_bytes(tmp_path: Path) -> None:
    words = "quiet " * 200
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"id": "d", "contents": f'"Town"\nThe mayor is Ada. {words}'}) + "\n"
    )
    (tmp_path / "q.jsonl").write_text(
        json.dumps({"id": "q", "question": "Who is the mayor?", "answer": "Ada"}) + "\n"
    )
    folder = tmp_path / "run"
    result = invoke(
        "eval", "--policy", "scripted", "--env", "corpus", "--num-tasks", "1", "--json",
        "--set", f"env.questions={tmp_path / 'q.jsonl'}", "--set", f"env.corpus={tmp_path}/c.jsonl",
        "--set", "env.test_frac=1", "--run-dir", str(folder),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    row = next(Run.open(folder).rollouts("eval"))
    observation = row["turns"][0]["observation"]
    assert len(observation) > 1000 and observation.strip().endswith("</information>")


def test_eval_of_a_run_uses_its_own_configuration(micro_run: Path) -> None:
    result = invoke("eval", str(micro_run), "--json")
    assert result.exit_code == 0, result.output
    after = Run.open(micro_run).summary["after"]
    assert json.loads(result.stdout) == after
    assert "no run folder" in invoke("eval", str(micro_run / "policy")).output


def test_broken_plugin_is_named_and_stops_nothing() -> None:
    broken = Path(__file__).parents[1] / "fixtures" / "plugins" / "bad_syntax.py"
    result = invoke(*SCRIPTED, "--plugin", str(broken), "--json")
    assert result.exit_code == 0, result.output
    assert "not loaded: plugin bad_syntax" in result.stderr
    result = invoke(*SCRIPTED, "--plugin", str(broken), "--set", "strict_plugins=true")
    assert result.exit_code == 2 and "SyntaxError" in result.stderr
