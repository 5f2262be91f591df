"""The loop: it learns, it goes on exactly, and its update is the one of the equations."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from searchrl_control.training.folder import (
    begin_run,
    build_settings,
    read_run,
    reopen_run,
    run_training,
)
from searchrl_control.training.loop import Training, estimate

from searchrl import DamagedError, RunFolderError

MODULE = "searchrl_control"


def make(toy: dict[str, Any], **settings: Any) -> Training:
    env = {**toy, "actions": "heads", **settings.pop("env", {})}
    return Training(build_settings({"envs": [env], "questions": 3, "group_size": 8}, settings))


@pytest.mark.parametrize("network", ["linear", "gru"])
@pytest.mark.parametrize("algorithm", ["ppo", "dr_grpo"])
def test_a_network_learns(toy: dict[str, Any], algorithm: str, network: str) -> None:
    env = {"collection": "demo", "reward": "gain"}
    training = make(toy, env=env, algorithm=algorithm, network=network, lr=0.02, questions=10)
    told = [training.take_step() for _ in range(20)]
    first, last = (sum(one["ndcg"] for one in part) / 4 for part in (told[:4], told[-4:]))
    assert last > first + 0.04
    assert told[0]["kl"] == 0 and told[0]["entropy"] > 1 and told[-1]["kl"] > 0
    if (algorithm, network) == ("ppo", "gru"):
        assert told[-1]["value_loss"] < 0.6 * told[0]["value_loss"]


def test_what_was_drawn_is_legal_what_the_loss_reads_and_earned_what_its_episode_is_worth(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, rng, drawn = make(toy, floor=0.05), np.random.default_rng(0), []
    draw = torch.multinomial

    def record(p_BA: torch.Tensor, *of: int, **more: Any) -> torch.Tensor:
        drawn.append(p_BA)
        return draw(p_BA, *of, **more)

    monkeypatch.setattr(torch, "multinomial", record)
    played = training.play(*training._draw(rng), rng)
    p_BSA, is_done = torch.stack(drawn, dim=1), played.is_done_BS
    assert p_BSA[played.legal_BSA & is_done[..., None]].min() >= 0.05
    p_BS = p_BSA.gather(2, played.action_BS[..., None])[..., 0]
    logp_BS, _, _ = training._look(training.network, played)
    assert torch.allclose(logp_BS[is_done], p_BS[is_done].log(), atol=1e-5)
    chosen = played.legal_BSA.gather(2, played.action_BS[..., None])[..., 0]
    assert chosen[played.is_done_BS].all()
    assert played.action_BS[:, 0].eq(training.space.actions.index("Search")).all()
    costs = 0.001 * (played.action_BS != training.space.actions.index("Terminate")).float()
    earned = (played.reward_BS + costs * played.is_done_BS).sum(dim=1)
    worth = [turn.worth for turn in played.turns]
    assert earned.tolist() == pytest.approx(worth, abs=1e-6) and len(set(worth)) > 1


def test_a_run_that_is_killed_ends_with_the_same_bytes(toy: dict[str, Any], tmp_path: Path) -> None:
    stages = {"difficulty": {0: "any", 4: "mostly_hard"}}
    more = {"algorithm": "ppo", "epochs": 2, "max_steps": 9, "checkpoint_every": 3}
    settings = make(toy, env=stages, **more).settings
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_training(begin_run(whole, settings), whole, print)
    training = begin_run(killed, settings)
    steps = iter(range(7))
    with pytest.raises(StopIteration):  # in the eighth step
        run_training(training, killed, lambda text: next(steps))
    newest = sorted((killed / "checkpoints").iterdir())[-1]
    assert newest.name == "step_000006.safetensors"
    whole_file = newest.read_bytes()
    newest.write_bytes(whole_file[:-1])
    with pytest.raises(DamagedError, match="step_000006.*remove it"):
        reopen_run(read_run(killed), settings)
    newest.write_bytes(whole_file)
    training = reopen_run(read_run(killed), settings)
    assert training.step == 6
    run_training(training, killed, print)

    def read(folder: Path) -> dict[str, Any]:
        files = {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
        rows = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
        return {**files, "rows": [{**row, "episodes_per_s": 0} for row in rows]}

    assert (whole / "tensorboard").is_dir() is (find_spec("tensorboard") is not None)
    assert len(read(whole)["rows"]) == 9 and len(read(whole)) == 5
    assert read(whole) == read(killed)
    with pytest.raises(RunFolderError, match=f"--resume {whole}"):
        begin_run(whole, settings)


@pytest.mark.parametrize("algorithm", ["ppo", "dr_grpo"])
def test_a_network_that_wants_one_action_keeps_the_others_and_the_run_says_so(
    toy: dict[str, Any], tmp_path: Path, algorithm: str
) -> None:
    settings = make(toy, algorithm=algorithm, max_steps=3, lr=1e-4).settings
    training, said = begin_run(tmp_path / "run", settings), []
    with torch.no_grad():
        training.network.actor.bias.fill_(-1e3)
        training.network.actor.bias[training.space.actions.index("Terminate")] = 1e3
    run_training(training, tmp_path / "run", said.append)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    for row in map(json.loads, rows):
        assert 0.001 <= row["least_action_p"] < 0.00101 and np.isfinite(row["grad_norm"])
    assert all("greedy play uses 1 of its actions only" in line for line in said)


def test_a_stage_of_the_curriculum_begins_with_its_step(toy: dict[str, Any]) -> None:
    training = make(toy, env={"difficulty": {0: "any", 4: "mostly_hard"}})
    levels = [training._open(0, done).settings.difficulty for done in (0, 3, 4, 9)]
    assert levels == ["any", "any", "mostly_hard", "mostly_hard"]


def test_collections_are_drawn_as_often_as_they_have_questions(toy: dict[str, Any]) -> None:
    envs = [toy, {**toy, "collection": "demo"}]  # 2 and 33 questions
    training = Training(build_settings({"envs": envs, "questions": 525, "group_size": 1}))
    names = [env.world.name for env in training._draw(np.random.default_rng(0))[0]]
    assert names.count("toy") == pytest.approx(30, abs=10) and len(names) == 525


# Two episodes, of two steps and of three. With a decay of .5, half of what is later counts.
REWARDS = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 4.0]])
VALUES = torch.tensor([[2.0, 4.0, 99.0], [8.0, 2.0, 6.0]])
IS_DONE = torch.tensor([[True, True, False], [True, True, True]])


def test_done_is_not_shifted_by_one_step_in_the_advantages() -> None:
    """The hand table, from the back, one episode after the other:

    | t | r | V | V after | delta                  | advantage                |
    | 4 | 4 | 6 | 0       | 4 + 0 - 6 = -2         | -2                       |
    | 3 | 1 | 2 | 6       | 1 + 6 - 2 = 5          | 5 + .5 * -2 = 4          |
    | 2 | 0 | 8 | 2       | 0 + 2 - 8 = -6         | -6 + .5 * 4 = -4         |
    | 1 | 2 | 4 | 0       | 2 + 0 - 4 = -2         | -2                       |
    | 0 | 1 | 2 | 4       | 1 + 4 - 2 = 3          | 3 + .5 * -2 = 2          |
    """
    told = estimate(REWARDS, VALUES, IS_DONE, decay=0.5)
    assert told.tolist() == [[2.0, -2.0, 0.0], [-4.0, 4.0, -2.0]]
