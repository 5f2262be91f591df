"""The recipes for a model that no test can load: room for an episode, and commands that run."""

import shlex
from pathlib import Path

import pytest
from command_line import succeed
from docs_runner import read_blocks

from searchrl.config import build_config

pytestmark = pytest.mark.thorough

REPO = Path(__file__).resolve().parent.parent


SMALL = {
    "max_steps": 1,
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_turn_tokens": 100},
    "eval": {"num_tasks": 1, "num_tasks_during": 1},
    # Short ones: the context of the tiny model holds no episode of the expert at this level.
    "sft": {"stages": [{"steps": 1, "batch_size": 2, "mix": {"passive": 1.0}}]},
    "model": {"name": "tiny"},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["qwen3_4b.md", "first-gpu-run.md"])
def test_commands_that_need_the_weights_run_with_the_tiny_model(
    name: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from searchrl.programs.setup import planning

    (page,) = (REPO / "docs").rglob(name)
    (own_folder / "examples").symlink_to(REPO / "examples")
    monkeypatch.setattr(planning, "build_config", lambda *layers: build_config(*layers, SMALL))
    commands = [
        line
        for block in read_blocks(page)
        if "needs the" in block.not_run
        for line in block.commands
    ]
    assert commands
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "searchrl"
        if words[0] == "eval" and words[1].startswith("runs/"):
            words += ["--num-tasks", "1"]
        succeed(*words)
