"""`searchrl train`: plan, plain output, JSON, Ctrl-C and resume, failing plugins."""

import json
from pathlib import Path

import pytest
import yaml
from command_line import succeed

from searchrl.config import build_config
from searchrl.run_folder import Run

pytestmark = pytest.mark.thorough


def test_dry_run_prints_the_plan_and_writes_nothing(micro_flags: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = succeed(
        "train", *micro_flags, "--run-dir", folder, "--seed", "5", "--dry-run", "--details"
    )
    assert not folder.exists()
    config = build_config(yaml.safe_load(result.stdout))
    assert (config.seed, config.max_steps) == (5, 1)
    assert f"# run_dir: {folder}" in result.stdout
    assert "regulations/train: " in result.stdout and "regulations/test: " in result.stdout


def test_dry_run_loads_no_weights(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    result = succeed("train", "--model", str(model), "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["model"] == str(model) and plan["config"]["preset"] == "qwen3_4b_lora"


def test_plain_output_has_one_line_per_step_and_no_control_codes(
    micro_flags: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    result = succeed(
        "train", *micro_flags, "--max-steps", "2", "--set", "eval.every=1", "--run-dir", folder
    )
    out = result.stdout
    assert "\x1b" not in out and "\r" not in out
    steps = [line for line in out.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["1/2", "2/2"]
    assert "  reward " in steps[0] and "  kl " not in steps[0]  # there is no reference
    for label in ("before (step 0)", "during (step 1)", "after (step 2)"):
        assert f"evaluation {label}: " in out
    assert str(folder / "summary.json") in out and f"searchrl ask {folder}" in out


def test_json_prints_the_summary_alone(micro_flags: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = succeed("train", *micro_flags, "--run-dir", folder, "--json")
    printed = json.loads(result.stdout)
    assert printed == {"run": str(folder), **Run.open(folder).summary}
    assert set(printed["after"]["em"]) == {"value", "low", "high", "n"}
    assert "step 1/1" in result.stderr
