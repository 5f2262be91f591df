"""What is trained of several contexts, how a run goes on after a kill, and the alarm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from context_play import CODEC, played
from searchrl_context.training import make_resum, make_supo
from searchrl_context.watching import SummaryCollapse

from searchrl import evaluate, train
from searchrl.algorithms import Algorithm, StepScores, Trajectory, TurnStop
from searchrl.contracts import COMPACT
from searchrl.core.group import TrainItem, make_groups
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Origin
from searchrl.engine.learning.packing import PackedRow, pack_step
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.sampling.generator import FinishedTurn
from searchrl.engine.sampling.scripted import ScriptedGenerator
from searchrl.testing import make_history


def record(name: str, *segments: tuple[str, int]) -> Trajectory:
    """A rollout with so many turns in segments that begin for a reason."""
    made = Trajectory(name, "g")
    for number, (reason, num_turns) in enumerate(segments):
        if number:
            made.begin_segment(reason)
        made.append_prompt([1, 2])
        for _ in range(num_turns):
            made.append_model([3, 4], [-1.0, -1.0], version=0, reason=TurnStop.STOP_STRING)
    return made


def test_all_contexts_have_the_advantage_of_the_end_and_masks_take_what_they_name() -> None:
    split = record("g/0", ("first", 2), ("summary", 1), ("fold", 2))
    cut = record("g/1", ("first", 2), ("drop", 1))
    items = [TrainItem(split, 1.0), TrainItem(cut, 0.0, is_cut=True)]
    step = StepScores([1.0, 0.0], ["g", "g"], [True, True], items)
    masked = [1.0, 0.0, 0.0, 1.0, 1.0]  # turns 1 and 2 wrote what the next contexts begin with
    for algorithm, expected in (
        (make_resum(), [[1.0] * 5, [-1.0] * 3]),
        (make_supo(), [[1.0] * 5, [0.0] * 3]),
        (make_resum(mask_summaries=True), [masked, [-1.0] * 3]),
        (make_supo(mask_summaries=True), [masked, [0.0] * 3]),
    ):
        made: Any = algorithm.advantages(step)
        assert [[round(one, 3) for one in own.values] for own in made] == expected


class Sampled(RolloutRequest):
    """Scripted play that counts as sampled."""

    origin = Origin.SAMPLED  # type: ignore[assignment]


class Sampler(ScriptedGenerator):
    """Gives each token a log-prob, and remembers what each script said."""

    said: dict[Any, list[int]]

    def poll(self) -> list[FinishedTurn]:
        turns = [replace(one, logps=(-0.5,) * len(one.ids)) for one in super().poll()]
        for turn in turns:
            self.said.setdefault(self._dialogues[turn.handle][0], []).extend(turn.ids)
        return turns


def packed(trajectories: Sequence[Trajectory], reduction: Any) -> dict[str, list[PackedRow]]:
    """The rows of each rollout in a step in which every rollout has an advantage."""
    mine = Algorithm("mine", lambda step: [1.0] * len(step.rewards), make_resum().loss)
    groups = make_groups([TrainItem(one, 1.0) for one in trajectories])
    rows: dict[str, list[PackedRow]] = defaultdict(list)
    for row in pack_step(groups, mine, LossSettings(reduction=reduction, beta=1.0)).rows:
        rows[row.rollout_id].append(row)
    return rows


def in_one_segment(trajectory: Trajectory) -> Trajectory:
    flat = Trajectory(trajectory.rollout_id, trajectory.group_id)
    flat.append_prompt([1])
    for turn in trajectory.turns:
        ids = trajectory.turn_ids(turn)
        flat.append_model(ids, [-0.5] * len(ids), version=0, reason=turn.reason)
    return flat


def test_of_200_rollouts_every_token_is_trained_once_and_several_segments_weigh_as_one() -> None:
    generator, rollouts = Sampler(CODEC), list[Trajectory]()
    generator.said = {}
    for mode in ("summary", "fold", "drop", "cut"):

        def ask(world: Any, mode: str = mode) -> list[RolloutRequest]:
            script = world.script("habit")
            return [
                Sampled(f"{mode}{n}", world, "train", n, (n, n + 1), script=script)
                for n in range(25)
            ]

        rollouts += [one.trajectory for one in played(ask, generator, mode=mode, window=400)]
    num_segments = [len(one.segments) for one in rollouts]
    assert len(rollouts) == 200 and sum(num_segments[:150]) > 450
    trained = [
        [i for row in rows for i, is_in in zip(row.ids, row.mask, strict=True) if is_in]
        for rows in packed(rollouts, "token-mean").values()
    ]
    assert trained == [*generator.said.values()]
    for reduction in ("token-mean", "sequence-mean", "constant"):
        split, whole = (
            [sum(sum(row.over_tokens("weight")) for row in rows) for rows in step.values()]
            for step in (
                packed(rollouts, reduction),
                packed([*map(in_one_segment, rollouts)], reduction),
            )
        )
        assert split == pytest.approx(whole, rel=1e-9) and len(split) == 200
        assert reduction == "constant" or sum(split) == pytest.approx(1.0)


TINY: dict[str, Any] = {
    "env": "regulations", "reward": "em", "wrapper": {"name": "jotting", "mode": "fold"},
    "plugins": ["searchrl_context", str(Path(__file__).with_name("context_play.py"))],
    "model": {"name": "tiny", "adapter": "full", "dtype": "float32", "instructions": False},
    "rollout": {"group_size": 3, "prompts_per_step": 2, "max_turn_tokens": 60,
                "max_observation_tokens": 60},
    "algorithm": "resum", "num_threads": 1, "max_steps": 3, "checkpoint": {"every": 2},
    "eval": {"num_tasks": 8, "every": 0, "forced": False, "temperature": 1.0},
}  # fmt: skip
"""A run of the tiny model; what it writes behind a page is its note."""


def test_equal_observations_give_equal_ledgers_with_any_number_of_slots() -> None:
    first, *others = (
        evaluate({**TINY, "eval": {**TINY["eval"], "batch_size": n}}).rollouts for n in (1, 3, 8)
    )
    assert sum(one.episode.signals["summary_words"] > 9 for one in first) > 1
    for rollouts in others:
        for one, other in zip(first, rollouts, strict=True):
            assert other.trajectory.ids == one.trajectory.ids and other.episode == one.episode


KILLED = """
import json, os, signal, sys
from searchrl import train
from searchrl.programs.setup.session import Session
from searchrl_context.env import ContextEnv

update, compact, updates = Session.update, ContextEnv._compact, []

def updated(self, *given):
    updates.append(1)
    return update(self, *given)

def compacted(self, written):
    made = compact(self, written)
    if len(updates) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return made

Session.update, ContextEnv._compact = updated, compacted
train(json.loads(sys.argv[1]))
"""


@pytest.mark.thorough
def test_killed_behind_a_summary_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = train({**TINY, "run_dir": str(tmp_path / "whole")})
    job = json.dumps({**TINY, "run_dir": str(tmp_path / "killed")})
    assert subprocess.run([sys.executable, "-c", KILLED, job], check=False).returncode == -9
    runs = whole, train(resume=tmp_path / "killed")
    rows, resumed = (list(run.rollouts("train")) for run in runs)
    assert rows == resumed
    kinds = [turn["action"] for row in rows if row["step"] == 3 for turn in row["turns"]]
    assert COMPACT in kinds
    weights, others = ((run.path / "policy/model.safetensors").read_bytes() for run in runs)
    assert weights == others


@pytest.mark.parametrize(
    ("words", "copied", "found"),
    [
        ([40.0] * 10 + [15.0] * 10, [0.2] * 20, ""),  # shorter, and not nothing
        ([40.0] * 15 + [2.0] * 4 + [40.0], [0.2] * 15 + [2.0] * 4 + [0.2], ""),  # not in a row
        ([40.0] * 15 + [2.0] * 5, [0.2] * 20, "from 20.0 words to 1.0"),
        ([40.0] * 20, [0.2] * 15 + [1.5] * 5, "75% of the summaries"),
    ],
)
def test_the_alarm_sounds_where_summaries_say_nothing(
    words: Sequence[float], copied: Sequence[float], found: str
) -> None:
    names = {"signal:summary_words": words, "signal:summary_copied": copied}
    alert = SummaryCollapse().check(make_history(**{"signal:summaries": [2.0] * 20, **names}))
    if not found:
        assert alert is None
    else:
        assert alert is not None and found in alert.what and alert.since == 16
