"""Demonstrations of a cold start: scripted episodes or recorded traces, in whole turns.

Scripts pass through the same rollout driver as sampled episodes, so that tokens, authors and
observations are exactly those of training.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from searchrl.config import RunConfig
from searchrl.config.sft import SftStage
from searchrl.core.episode import StopReason
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key
from searchrl.envs.splits import TRAIN
from searchrl.errors import ConfigError, DataError
from searchrl.programs.traces import Trace, trace_trajectory

_DEMO = 0x5F7

_AT_ONCE = 64


class Demonstration(NamedTuple):
    """Whole turns to imitate. `is_cut` says that a token limit left out later ones."""

    trajectory: Trajectory
    is_cut: bool


_Key = tuple[int, str, int]
"""Key of a demonstration: the place of its world, the script and the training task."""


class Demonstrator:
    """Demonstrations of a step: a pure function of (seed, step).

    Scripted policies of the worlds play them, or `traces` are imitated, if not None; DataError for
    those that do not fit.
    """

    def __init__(
        self,
        config: RunConfig,
        worlds: Sequence[TaskWorld],
        policy: Policy,
        traces: Sequence[Trace] | None,
    ) -> None:
        self.config = config
        self.worlds = worlds
        self.traces = None if traces is None else _encode(traces, config, worlds[0], policy)
        self.driver = make_scripted_driver(config, policy.renderer)
        self.curriculum = Curriculum(worlds)
        self._kept: dict[_Key, Demonstration] = {}
        most = config.sft.num_tasks
        counts = {w.name: w.num_tasks(TRAIN) for w in worlds}  # entries of one env share tasks
        tasks = sum(min(count, most or count) for count in counts.values())
        self.num_different = tasks if self.traces is None else len(self.traces)
        """Traces, or training tasks: an epoch."""

    def __call__(self, stage: SftStage, step: int) -> list[Demonstration]:
        """Demonstrations of a step (from 0); ConfigError if an episode failed."""
        rng = random.Random(mix_key(self.config.seed, _DEMO, step))
        if self.traces is not None:
            return [rng.choice(self.traces) for _ in range(stage.batch_size)]
        names = rng.choices(list(stage.mix), list(stage.mix.values()), k=stage.batch_size)
        weights, most = self.curriculum.weights(step), self.config.sft.num_tasks
        keys: list[_Key] = []
        for name in names:
            place = rng.choices(range(len(self.worlds)), weights)[0]
            total = self.worlds[place].num_tasks(TRAIN)
            keys.append((place, name, rng.randrange(min(total, most or total))))
        known = {} if most is None else self._kept
        known |= self._play([key for key in dict.fromkeys(keys) if key not in known], step)
        return [known[key] for key in keys]

    def _play(self, keys: Sequence[_Key], step: int) -> dict[_Key, Demonstration]:
        requests = [
            _demo_request(self.worlds[place], name, index, self.config.seed, f"{step}/{number}")
            for number, (place, name, index) in enumerate(keys)
        ]
        rollouts = _episodes(self.driver, requests)
        limits = (StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)
        demonstrations = (
            Demonstration(_whole_turns(r.trajectory), r.episode.stop_reason in limits)
            for r in rollouts
        )
        return dict(zip(keys, demonstrations, strict=True))


def scripted_texts(config: RunConfig, worlds: Sequence[TaskWorld]) -> list[str]:
    """The texts of scripted episodes, for a tokenizer to read: prompts, turns, observations."""
    driver = make_scripted_driver(config)
    count = config.model.scratch.tokenizer_tasks
    mix = config.sft.stages[0].mix
    main = max(mix, key=lambda name: mix[name])
    requests = [
        _demo_request(
            world,
            "expert" if "expert" in world.entry.script_names else main,
            n // len(worlds) % world.num_tasks(TRAIN),
            config.seed,
            f"tokenizer/{n}",
        )
        for n, world in zip(range(count), itertools.cycle(worlds), strict=False)
    ]
    texts = []
    # Not all at once: hundreds that wait for one another miss their time limits.
    steps = [requests[n : n + _AT_ONCE] for n in range(0, len(requests), _AT_ONCE)]
    for rollout in (rollout for step in steps for rollout in _episodes(driver, step)):
        prompt_ids = rollout.trajectory.ids[: rollout.trajectory.num_prompt_tokens]
        texts.append(driver.codec.decode(prompt_ids))
        for turn in rollout.episode.turns:
            texts += [turn.text, turn.observation]
    return texts


def _episodes(driver: RolloutDriver, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    rollouts = [rollout for group in driver.run(requests) for rollout in group.rollouts]
    for failure in (rollout.episode.failure for rollout in rollouts):
        if failure is not None:
            raise ConfigError(
                f"a demonstration failed: {failure.owner}: {failure.message}\n{failure.detail}"
            )
    return rollouts


def _whole_turns(trajectory: Trajectory) -> Trajectory:
    """The trajectory without a last turn that was cut: or the model would learn to stop there."""
    turns = trajectory.turns
    is_cut = bool(turns) and turns[-1].reason is TurnStop.MAX_TOKENS
    if not is_cut or len(trajectory.segments) > 1:
        return trajectory
    whole = Trajectory(
        trajectory.rollout_id,
        trajectory.group_id,
        trajectory.env,
        trajectory.task_id,
        trajectory.origin,
    )
    ids, versions = trajectory.ids, trajectory.policy_versions
    whole.append_prompt(ids[: turns[0].start])
    for turn, after in pairwise(turns):
        version, reason = versions[turn.start], turn.reason
        whole.append_model(ids[turn.start : turn.stop], None, version=version, reason=reason)
        whole.append_env(ids[turn.stop : after.start])
    return whole


def _encode(
    traces: Sequence[Trace], config: RunConfig, world: TaskWorld, policy: Policy
) -> list[Demonstration]:
    """All traces as demonstrations; DataError if the first turn of some does not fit."""
    encoded, empty = [], []
    for trace in traces:
        trajectory = trace_trajectory(trace, policy.renderer, world.protocol, config)
        encoded.append(Demonstration(trajectory, len(trajectory.turns) < len(trace.turns)))
        if not trajectory.turns:
            empty.append(trace.id)
    if empty:
        raise DataError(
            f"{len(empty)} traces have no turn within rollout.max_total_tokens="
            f"{config.rollout.max_total_tokens} and model.max_context="
            f"{config.model.max_context}: {', '.join(empty[:5])}" + ", …" * (len(empty) > 5)
        )
    return encoded


def _demo_request(
    world: TaskWorld, script: str, index: int, seed: int, label: str
) -> RolloutRequest:
    return RolloutRequest(
        group_id=f"demo/{label}/{index}",
        world=world,
        split=TRAIN,
        index=index,
        rng_keys=(mix_key(seed, _DEMO, index),),
        script=world.script(script),
    )
