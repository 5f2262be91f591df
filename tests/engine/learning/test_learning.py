"""It trains and it learns: a micro model from nothing learns to search on one CPU thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_toy import TOY_PLUGIN

from searchrl.programs.sft import sft
from searchrl.programs.train import train
from searchrl.run_folder import Run

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {
        "env": {"name": "toy", "topk": 1, "max_turns": 3},
        "reward": "0.5*format+searched",
        "protocol": {"name": "think-search-answer", "instruction": ""},
        "plugins": [str(TOY_PLUGIN)],
        "rollout": {
            "group_size": 8,
            "prompts_per_step": 4,
            "max_turn_tokens": 24,
            "max_observation_tokens": 40,
            "max_total_tokens": 160,
        },
        "eval": {"num_tasks": 24, "forced": False, "every": 0},
        "log": {"rollouts": False},
        "num_threads": 1,
        "device": "cpu",
        "seed": 0,
    }


@pytest.fixture(scope="module")
def passive(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A cold start that mostly guesses: it knows the protocol, and greedy it never searches."""
    scratch = dict(vocab_size=320, hidden_size=48, intermediate_size=96, num_layers=2, num_heads=3)
    scratch |= dict(num_kv_heads=1, head_dim=16, tokenizer_tasks=40)
    stage = {"steps": 110, "mix": {"expert": 0.4, "guesser": 0.6}, "lr": 6e-3, "batch_size": 24}
    return sft(
        settings
        | {
            "model": {"name": "scratch", "max_context": 256, "scratch": scratch},
            "sft": {"stages": [stage | {"warmup_steps": 10}]},
            "run_dir": str(tmp_path_factory.mktemp("learning") / "sft"),
        }
    )


def test_sft_teaches_the_protocol(passive: Run):
    losses = [row["loss"] for row in passive.metrics if row["phase"] == "sft"]
    assert len(losses) == 110 and losses[-1] < 0.15 * losses[0]
    after = {name: metric["value"] for name, metric in passive.summary["after"].items()}
    assert after["format"] >= 0.95 and after["passive"] >= 0.9 and after["searched"] <= 0.1


def test_grpo_teaches_it_to_search(settings: dict[str, Any], passive: Run, tmp_path: Path):
    run = train(
        settings
        | {
            "init_from": str(passive.path),
            "model": {"max_context": 256},
            "algorithm": {"beta": 0.0},
            "optim": {"lr": 1e-3, "warmup_steps": 1},
            "max_steps": 8,
            "run_dir": str(tmp_path / "grpo"),
        }
    )
    before, after = (
        {name: metric["value"] for name, metric in run.summary[label].items()}
        for label in ("before", "after")
    )
    assert before["searched"] <= 0.1 and before["reward"] <= 0.6
    assert after["searched"] >= 0.9 and after["reward"] >= 1.3
    rewards = [row["reward"] for row in run.metrics if row["phase"] == "train"]
    assert sum(rewards[-3:]) / 3 >= sum(rewards[:3]) / 3 + 0.2
    assert all(row["max_abs_log_ratio"] <= 1e-4 for row in run.metrics if row["phase"] == "train")
