"""The recipes for a model that no test can load: room for an episode, and commands that run."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import succeed
from docs_runner import read_blocks

from searchrl.config import build_config, load_yaml

pytestmark = pytest.mark.thorough

REPO = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("level", ["easy", "normal", "hard"])
def test_episodes_of_the_expert_fit_the_limits(shared_data: Path, level: str) -> None:
    """In the tokens of Qwen3, with room for a talkative model."""
    from transformers import AutoTokenizer

    from searchrl.engine.model.rendering import Renderer
    from searchrl.engine.rollout.dialogue import RolloutRequest
    from searchrl.engine.rollout.drivers import make_scripted_driver
    from searchrl.engine.rollout.worlds import make_worlds
    from searchrl.plugins import load_plugins

    renderer = Renderer(AutoTokenizer.from_pretrained(shared_data / "qwen_tokenizer" / "qwen3"))
    env = {"name": "regulations", "difficulty": level, "max_turns": 5}
    config = build_config(load_yaml(REPO / "examples" / "qwen3_4b_80gb.yaml"), {"env": env})
    (world,) = make_worlds(config, load_plugins())
    driver, script = make_scripted_driver(config, renderer), world.script("expert")
    requests = [RolloutRequest(f"{i}", world, "test", i, (i,), script=script) for i in range(60)]
    rollouts = [rollout for group in driver.run(requests) for rollout in group.rollouts]
    assert all(r.episode.final_answer is not None for r in rollouts), "cut, or failed"
    pairs = [pair for r in rollouts for pair in pairwise(r.trajectory.turns)]
    observed = max(after.start - turn.stop for turn, after in pairs)
    assert observed < config.rollout.max_observation_tokens
    longest = max(len(r.trajectory.ids) for r in rollouts)
    assert longest < config.rollout.max_total_tokens / 1.5


SMALL = {
    "max_steps": 1,
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_turn_tokens": 100},
    "eval": {"num_tasks": 1, "num_tasks_during": 1},
    # Short ones: the context of the tiny model holds no episode of the expert at this level.
    "sft": {"stages": [{"steps": 1, "batch_size": 2, "mix": {"passive": 1.0}}]},
    "model": {"name": "tiny"},
}


@pytest.mark.timeout(600)
def test_commands_that_need_the_weights_run_with_the_tiny_model(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page, on a few tasks: the flags, the files and the names are right."""
    from searchrl.programs.setup import planning

    (page,) = (REPO / "docs").rglob("qwen3_4b.md")
    (own_folder / "examples").symlink_to(REPO / "examples")
    monkeypatch.setattr(planning, "build_config", lambda *layers: build_config(*layers, SMALL))
    commands = [line for block in read_blocks(page) if block.not_run for line in block.commands]
    assert commands
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "searchrl"
        if words[0] == "eval" and words[1].startswith("runs/"):
            words += ["--num-tasks", "1"]
        succeed(*words)
