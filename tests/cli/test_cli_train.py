"""`searchrl train`: plan, plain output, JSON, Ctrl-C and resume, failing plugins."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import yaml
from command_line import call, complaint, succeed

from searchrl.config import build_config
from searchrl.run_folder import Run

BREAKING = """
import os, signal, time
from searchrl import hookimpl

class Break:
    name, values, is_range = "breaks", (0.0, 1.0), False
    did_break = False
    def __call__(self, episode):
        if episode.task.split == "train" and episode.step >= {step} and not Break.did_break:
            {action}
        return 0.0

@hookimpl
def register_rewards(register):
    register("breaks", Break)
"""

pytestmark = pytest.mark.thorough


def breaking(folder: Path, action: str, step: int = 0) -> str:
    path = folder / "breaking.py"
    path.write_text(BREAKING.format(action=action, step=step))
    return str(path)


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


def test_auto_says_what_it_became(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    from searchrl.engine.model import loading

    if torch.cuda.is_available():
        pytest.skip("auto takes the large model where there is a GPU")
    monkeypatch.setattr(loading, "is_stored", lambda name: False)
    result = succeed("train", "--dry-run", "--run-dir", str(tmp_path / "run"))
    assert "auto → the embedded tiny model" in result.stdout


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
    for key in ("reward", "format", "em", "searches", "passive"):
        assert f"  {key} " in steps[0], key
    assert "  kl " not in steps[0]  # there is no reference
    assert "  dead_groups " in steps[0] and "  tokens_per_s " in steps[0]
    for label in ("before (step 0)", "during (step 1)", "after (step 2)"):
        assert f"evaluation {label}: " in out
    assert "held out, before" in out and "held out, after" in out
    assert "before training" in out and "after training" in out
    assert str(folder / "summary.json") in out and f"searchrl ask {folder}" in out


def test_json_prints_the_summary_alone(micro_flags: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = succeed("train", *micro_flags, "--run-dir", folder, "--json")
    printed = json.loads(result.stdout)
    assert printed == {"run": str(folder), **Run.open(folder).summary}
    assert set(printed["after"]["em"]) == {"value", "low", "high", "n"}
    assert "step 1/1" in result.stderr


@pytest.mark.usefixtures("unheard_signals")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_stopped_it_checkpoints_and_resume_goes_on(
    micro_flags: list[str], tmp_path: Path, name: str, code: int
) -> None:
    folder = tmp_path / "run"
    plugin = breaking(
        tmp_path, f"Break.did_break = True; os.kill(os.getpid(), signal.{name})", step=1
    )
    flags = [*micro_flags, "--max-steps", "3", "--plugin", plugin, "--reward", "format+breaks"]
    result = call("train", *flags, "--run-dir", folder)
    assert result.exit_code == code, result.output
    last = result.output.rstrip().splitlines()[-1]
    assert last.startswith("stopped after step ")
    assert last.endswith(f"continue with: searchrl train --resume {folder}")
    done = [row["step"] for row in Run.open(folder).metrics if row["phase"] == "train"]
    assert done and done[-1] < 3
    result = succeed("train", "--resume", folder)
    done = [row["step"] for row in Run.open(folder).metrics if row["phase"] == "train"]
    assert done == [1, 2, 3] and "held out, before" in result.stdout


def test_failing_reward_stops_training_and_is_attributed(micro_flags: list[str], tmp_path: Path):
    folder = tmp_path / "run"
    plugin = breaking(tmp_path, "raise RuntimeError('the table is empty')", step=0)
    flags = [*micro_flags, "--plugin", plugin, "--reward", "format+breaks"]
    text = complaint("train", *flags, "--run-dir", folder, code=3)
    for part in ("reward 'breaks' of plugin breaking", "the table is empty", "--resume"):
        assert part in text, part
    saved = list((folder / "failures").iterdir())
    assert len(saved) == 1 and str(saved[0]) in text
    assert "breaking.py" in saved[0].read_text()


def test_hanging_reward_is_a_timeout(micro_flags: list[str], tmp_path: Path) -> None:
    plugin = breaking(tmp_path, "time.sleep(30)", step=0)
    flags = [*micro_flags, "--plugin", plugin, "--reward", "format+breaks"]
    flags += ["--set", "rollout.reward_timeout_s=0.1", "--run-dir", str(tmp_path / "run")]
    text = complaint("train", *flags, code=3)
    assert "timeout failure of reward 'breaks' of plugin breaking" in text


ENV = """
import time
from searchrl import hookimpl
from searchrl.core.episode import Passage, Task
from searchrl.envs.text import TextEnv

class Fragile(TextEnv):
    name = "fragile"
    def num_tasks(self, split):
        return 8
    def make_task(self, split, index):
        return Task(f"{{split}}-{{index}}", split, index, "how many?", ("3",))
    def passages(self, task):
        return "all", [Passage("p", "three")]
    def step(self, action):
        if self.task.split == "train":
            {action}
        return super().step(action)

@hookimpl
def register_envs(register):
    register("fragile", Fragile)
"""


@pytest.mark.parametrize(
    ("action", "kind", "said"),
    [
        ("raise KeyError('the map is lost')", "environment", "KeyError: 'the map is lost'"),
        ("time.sleep(30)", "timeout", ""),
    ],
)
def test_failing_or_hanging_env_stops_training_and_keeps_what_was_done(
    micro_flags: list[str], tmp_path: Path, action: str, kind: str, said: str
) -> None:
    folder, plugin = tmp_path / "run", tmp_path / "fragile_env.py"
    plugin.write_text(ENV.format(action=action))
    flags = [*micro_flags, "--env", "fragile", "--plugin", str(plugin), "--run-dir", folder]
    # A random model seldom ends a turn: eight long ones, so that some reach the environment.
    flags += ["--set", "rollout.env_timeout_s=0.1", "--set", "rollout.max_failure_frac=0"]
    flags += ["--set", "rollout.prompts_per_step=4", "--set", "rollout.max_turn_tokens=200"]
    text = complaint("train", *flags, "--seed", "1", code=3)
    assert f"First: {kind} failure of env 'fragile' (plugin fragile_env): {said}" in text
    assert f"searchrl train --resume {folder}" in text
    assert (folder / "checkpoints" / "step_000000" / "state.json").is_file()


def test_full_disk_says_what_to_do(
    micro_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"

    def full(descriptor: int) -> None:
        if list(folder.glob("checkpoints/step_*/state.json")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("searchrl.trackers.rows.os.fsync", full)
    text = complaint("train", *micro_flags, "--run-dir", folder)
    assert "No space left on device" in text and f"--resume {folder}" in text


def test_sft_ends_with_the_next_command(micro_flags: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stage = "sft.stages=[{steps: 2, batch_size: 2}]"
    place = micro_flags.index("--max-steps")
    flags = [*micro_flags[:place], *micro_flags[place + 2 :], "--set", stage]
    flags += ["--set", "rollout.max_turn_tokens=400", "--set", "rollout.max_total_tokens=2048"]
    flags += ["--run-dir", folder]
    result = succeed("sft", *flags)
    steps = [line for line in result.stdout.splitlines() if line.startswith("step ")]
    assert len(steps) == 2 and "  loss " in steps[0] and "token_accuracy" in steps[0]
    assert f"searchrl train --init-from {folder}" in result.stdout


def test_dry_run_counts_the_tasks_of_each_entry_on_one_environment() -> None:
    tasks = "tasks=[{env: regulations}, {env: {name: regulations, difficulty: hard}}]"
    result = succeed("train", "--set", tasks, "--dry-run", "--json")
    wanted = {
        f"regulations.{n}/{split}" for n in (0, 1) for split in ("train", "validation", "test")
    }
    assert set(json.loads(result.stdout)["num_tasks"]) == wanted


@pytest.mark.parametrize("flag", ["--allow-change"])
def test_flags_of_a_resumed_run_need_one(flag: str) -> None:
    assert f"{flag} goes with --resume RUN" in complaint("train", "--env", "regulations", flag)
