"""What is trained of several contexts, how a run goes on after a kill, and the alarm."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
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
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.sampling.generator import FinishedTurn
from searchrl.engine.sampling.scripted import ScriptedGenerator
from searchrl.testing import make_history


def item(name: str, reward: float, is_cut: bool, *reasons: str) -> TrainItem:
    """A rollout of one turn in each segment; they begin for these reasons."""
    made = Trajectory(name, "g")
    for number, reason in enumerate(reasons):
        if number:
            made.begin_segment(reason)
        made.append_prompt([1, 2])
        made.append_model([3, 4], [-1.0, -1.0], version=0, reason=TurnStop.STOP_STRING)
    return TrainItem(made, reward, is_cut=is_cut)


def test_all_contexts_have_the_advantage_of_the_end_and_masks_take_what_they_name() -> None:
    reasons = ("first", "drop", "summary", "fold")
    items = [item("g/0", 1.0, False, *reasons), item("g/1", 0.0, True, "first", "drop")]
    step = StepScores([1.0, 0.0], ["g", "g"], [True, True], items)
    masked = [1.0, 0.0, 0.0, 1.0]  # turns 1 and 2 wrote what the next contexts begin with
    for algorithm, expected in (
        (make_resum(), [[1.0] * 4, [-1.0] * 2]),
        (make_supo(), [[1.0] * 4, [0.0] * 2]),
        (make_resum(mask_summaries=True), [masked, [-1.0] * 2]),
        (make_supo(mask_summaries=True), [masked, [0.0] * 2]),
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


def test_of_200_rollouts_every_token_is_trained_once_and_several_segments_weigh_as_one() -> None:
    generator, items = Sampler(CODEC), list[TrainItem]()
    generator.said = {}
    for mode in ("summary", "fold", "drop", "cut"):

        def ask(world: Any, mode: str = mode) -> list[RolloutRequest]:
            more: Any = {"script": world.script("habit")}
            return [Sampled(f"{mode}{n}", world, "train", n, (n, n + 1), **more) for n in range(25)]

        rollouts = played(ask, generator, mode=mode, window=400)
        items += [TrainItem(one.trajectory, 1.0) for one in rollouts]
    assert len(items) == 200 and sum(len(one.trajectory.segments) for one in items) > 500
    said = [*generator.said.values()]
    mine = Algorithm("mine", lambda step: [1.0] * 200, make_resum().loss)
    sizes = {
        "token-mean": [len(ids) / sum(map(len, said)) for ids in said],
        "sequence-mean": [1 / 200] * 200,
    }
    for reduction, expected in sizes.items():
        settings: Any = LossSettings(reduction=reduction, beta=1.0)
        trained: dict[str, list[int]] = defaultdict(list)
        weights: dict[str, float] = defaultdict(float)
        for row in pack_step(make_groups(items), mine, settings).rows:
            trained[row.rollout_id] += itertools.compress(row.ids, row.mask)
            weights[row.rollout_id] += sum(row.over_tokens("weight"))
        assert [*trained.values()] == said
        assert [*weights.values()] == pytest.approx(expected, rel=1e-9)


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


@pytest.mark.thorough
def test_killed_behind_a_summary_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    job = json.dumps({**TINY, "run_dir": str(killed)})
    code = "import json, sys, searchrl; searchrl.train(json.loads(sys.argv[1]))"
    env = os.environ | {"KILL_BEHIND": str(killed)}
    assert subprocess.run([sys.executable, "-c", code, job], env=env, check=False).returncode == -9
    runs = train({**TINY, "run_dir": str(tmp_path / "whole")}), train(resume=killed)
    rows, resumed = (list(run.rollouts("train")) for run in runs)
    assert rows == resumed
    kinds = [turn["action"] for row in rows if row["step"] == 3 for turn in row["turns"]]
    assert COMPACT in kinds
    weights, others = ((run.path / "policy/model.safetensors").read_bytes() for run in runs)
    assert weights == others


@pytest.mark.parametrize(
    ("words", "copied", "found"),
    [
        ([40] * 10 + [15] * 10, [0.2] * 20, ""),  # shorter, and not nothing
        ([40] * 15 + [2] * 4 + [40], [0.2] * 15 + [2.0] * 4 + [0.2], ""),  # not in a row
        ([40] * 15 + [2] * 5, [0.2] * 20, "from 20.0 words to 1.0"),
        ([40] * 20, [0.2] * 15 + [1.5] * 5, "75% of the summaries"),
    ],
)
def test_the_alarm_sounds_where_summaries_say_nothing(words: Any, copied: Any, found: str) -> None:
    values = {"signal:summaries": [2.0] * 20, "signal:summary_words": words}
    alert = SummaryCollapse().check(make_history(**values, **{"signal:summary_copied": copied}))
    assert (alert is not None) == bool(found)
    assert alert is None or (found in alert.what and alert.since == 16)
