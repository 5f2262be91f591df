"""Training on what rewards say: nothing could be scored, turns are scored that nobody reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from train_toy import TOY_PLUGIN, Crash, settings

from searchrl.algorithms.builtin import make_dapo, make_grpo, make_llds
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import StepScores, grpo_advantages
from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.errors import FailureLimitError
from searchrl.programs.train import train

pytestmark = [pytest.mark.usefixtures("threads_restored")]

BY_TURN = """
from searchrl import hookimpl
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import grpo_advantages
from searchrl.core.episode import Score
from searchrl.rewards import FunctionReward

def steps(episode):
    return Score(float(len(episode.turns) % 2), tuple(0.5 for _ in episode.turns))

def by_turn(step):
    whole = grpo_advantages(step)
    earned = step.turn_scores or [[0.0] * n for n in step.num_turns]
    return [[a + one for one in own] for a, own in zip(whole, earned)]

def make_by_turn():
    from searchrl.core.loss import ppo_clip_loss
    return Algorithm("by_turn", by_turn, ppo_clip_loss)

@hookimpl
def register_rewards(register):
    register("steps", lambda: FunctionReward("steps", steps, (0.0, 1.0)))

@hookimpl
def register_algorithms(register):
    register("by_turn", make_by_turn)
"""


def test_a_step_in_which_nothing_could_be_scored_stops_with_the_reason(
    micro_model: Path, tmp_path: Path
) -> None:
    heard = Crash()
    with pytest.raises(FailureLimitError) as caught:
        train(settings(micro_model, tmp_path / "run", task={"reward": "declines"}), observer=heard)
    text = str(caught.value)
    assert text.startswith("training stopped at step 1: none of its 6 rollouts could be scored")
    assert "  6 × reward 'declines' could not score: the judge is away" in text
    assert "--reward env" in text and "env 'toy'" in text
    assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == 0
    assert heard.notes[-1].endswith(f"continue with: searchrl train --resume {tmp_path / 'run'}")


def test_a_step_with_one_scored_rollout_goes_on(micro_model: Path, tmp_path: Path) -> None:
    both = [
        {"env": "toy", "reward": reward, "metrics": [], "protocol": {"name": "short-stops"}}
        for reward in ("parity", "declines")
    ]
    more = {"tasks": both, "max_steps": 1, "rollout": {"prompts_per_step": 6}}
    run = train(settings(micro_model, tmp_path / "run", **more))
    (row,) = [row for row in run.metrics if row["phase"] == "train"]
    assert 0 < row["unscored"] < 1


@pytest.mark.parametrize(("algorithm", "is_told"), [("grpo", True), ("by_turn", False)])
def test_scores_of_turns_that_go_unread_are_said_once(
    algorithm: str, is_told: bool, micro_model: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "turns.py"
    plugin.write_text(BY_TURN, "utf-8")
    config: dict[str, Any] = settings(
        micro_model, tmp_path / "run", task={"reward": "parity+steps"},
        plugins=[str(TOY_PLUGIN), str(plugin)], max_steps=2,
        algorithm={"name": algorithm},
    )  # fmt: skip
    heard = Crash()
    train(config, observer=heard)
    told = [note for note in heard.notes if "a score per turn" in note]
    assert len(told) == is_told
    assert all("reward 'steps'" in one and f"algorithm '{algorithm}'" in one for one in told)


def test_which_algorithms_read_the_scores_of_turns() -> None:
    def own(step: StepScores) -> list[float]:
        return [0.0 for _ in step.rewards]

    assert not any(make().reads_turn_scores for make in (make_grpo, make_dapo, make_llds))
    loss = make_grpo().loss
    assert Algorithm("own", own, loss).reads_turn_scores
    assert not Algorithm("bound", partial(grpo_advantages, delta=1e-3), loss).reads_turn_scores
