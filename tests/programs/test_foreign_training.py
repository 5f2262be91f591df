"""A foreign environment from nothing to a trained policy: the cold start at random, then GRPO.

The fast tests take a step or two of the example configurations; the tier `slow` takes enough of
them to see that it learns (the figures of the whole runs are in docs/log.md).
"""

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config, load_yaml, merge
from searchrl.core.episode import ACT
from searchrl.programs.agent import load_agent, run_settings
from searchrl.programs.evaluate import evaluate
from searchrl.programs.sft import sft
from searchrl.programs.train import train
from searchrl.run_folder import Run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COLD, LAKE = (load_yaml(EXAMPLES / f"frozen_lake{name}.yaml") for name in ("_cold_start", ""))


def cold_start(folder: Path, *, steps: int, num_tasks: int, **model: Any) -> Run:
    small = {
        "sft": {"stages": {"0": {"steps": steps}}},
        "eval": {"num_tasks": num_tasks},
        "model": {"scratch": model},
        "run_dir": str(folder / "cold"),
        "num_threads": 1,
    }
    return sft(build_config(COLD, small))


def play(folder: Path, cold: Run, *, steps: int, num_tasks: int, group_size: int) -> Run:
    layer = {
        "rollout": {"group_size": group_size},
        "eval": {"num_tasks": num_tasks, "every": 0},
        "max_steps": steps,
        "init_from": str(cold.path),
        "run_dir": str(folder / "lake"),
        "num_threads": 1,
    }
    return train(merge(LAKE, layer))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Two steps of each program: the policy is a random one, all else as in earnest."""
    folder = tmp_path_factory.mktemp("lake")
    cold = cold_start(folder, steps=2, num_tasks=4, tokenizer_tasks=40)
    return cold, play(folder, cold, steps=1, num_tasks=4, group_size=4)


def test_a_run_stores_the_protocol_that_auto_became(runs: tuple[Run, Run]) -> None:
    for run in runs:
        (task,) = run.config.tasks
        assert (task.env.name, task.protocol.name) == ("gym:FrozenLake-v1", "act")
        assert run.config.model.instructions is False
        assert "protocol: {" not in (run.path / "config.yaml").read_text("utf-8")
        assert "name: act" in (run.path / "config.yaml").read_text("utf-8")


def test_a_run_is_used_again_with_its_own_environment_and_protocol(runs: tuple[Run, Run]) -> None:
    result = evaluate(build_config(run_settings(runs[1]), {"eval": {"num_tasks": 2}}))
    assert {r.episode.task.env for r in result.rollouts} == {"gym:FrozenLake-v1"}
    assert result.metrics["failed"]["value"] == 0.0
    agent = load_agent(runs[1].path)
    assert agent.world.protocol.name == "act" and agent.config.tasks[0].protocol.name == "act"
    agent.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_cold_start_moves_at_random_and_grpo_learns_the_way(tmp_path: Path) -> None:
    cold = cold_start(tmp_path, steps=250, num_tasks=256)
    assert cold.summary["after"]["success"]["value"] <= 0.08
    assert cold.summary["after"]["format"]["value"] >= 0.8
    lake = play(tmp_path, cold, steps=24, num_tasks=256, group_size=LAKE["rollout"]["group_size"])
    before, after = (lake.summary[when]["success"] for when in ("before", "after"))
    assert after["low"] > before["high"], (before, after)
    result = evaluate(build_config(run_settings(lake), {"eval": {"num_tasks": 8}}))
    kinds = {turn.action.kind for r in result.rollouts for turn in r.episode.turns}
    assert ACT in kinds
