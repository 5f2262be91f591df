"""`luffy`, `exgrpo` and `hybrid`: GRPO whose groups also hold what was not sampled now.

One mixer fills the groups: a demonstration where the traces have one for the task (LUFFY), and, in
a share of the prompts, an earlier success of a prompt that is asked again (ExGRPO). Both take the
place of a rollout, so a group keeps its size and the step samples less.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from searchrl import ConfigError
from searchrl.algorithms import (
    Algorithm,
    Hooks,
    Origin,
    Probe,
    Prompt,
    Trainer,
    Trajectory,
    grpo_advantages,
)
from searchrl_offpolicy.demonstrations import Task, load
from searchrl_offpolicy.experience import Experience, Place, replayed, take_success
from searchrl_offpolicy.loss import Shaping, mixed_loss
from searchrl_offpolicy.traces import read_traces

_ROUNDING = 1e-9

Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def make_hybrid(
    name: str = "hybrid",
    /,
    *,
    traces: str = "",
    on: Weight = 1.0,
    off: Weight = 1.0,
    demonstrations: Count = 1,
    share: Share = 0.5,
    ratio: Share = 0.5,
    threshold: Share = 0.35,
    min_reward: float | None = None,
    success: str = "",
    buffer: Count = 10_000,
    gamma: Positive = 0.1,
    shaping: Shaping = "rational",
) -> Algorithm:
    """LUFFY and ExGRPO together; a prompt that is asked again gets no demonstration.

    Args:
        traces: a file of traces, or a run folder whose episodes are taken.
        on: weight of sampled rollouts.
        off: weight of demonstrations and replayed successes; 0: GRPO, without any.
        demonstrations: number in a group whose task has some; they take the places of rollouts.
        share: least share of prompts with demonstrations; their tasks replace others. 0: tasks keep
            their order.
        ratio: share of the prompts of a step that are asked again, once replay has begun.
        threshold: replay begins after a step with a larger share of successes.
        min_reward: least reward of a demonstration; by default it must be a success.
        success: component whose greatest value is a success; by default the task's headline.
        buffer: most rollouts that are kept.
        gamma: of f(x) = x / (x + gamma).
        shaping: `rational` is that f; `none` is f(x) = x.
    """
    mixer = Mixer(
        traces=traces if off and demonstrations else None,
        per_group=demonstrations,
        share=share,
        min_reward=min_reward,
        success=success,
        ratio=ratio if off else 0.0,
        threshold=threshold,
        capacity=buffer,
    )
    loss = partial(mixed_loss, on=on, off=off, gamma=gamma, shaping=shaping)
    return Algorithm(name, grpo_advantages, loss, hooks=mixer, off_policy=True)


def _half(name: str, **fixed: Any) -> Callable[..., Algorithm]:
    """`make_hybrid` under another name; what is fixed is no setting of it."""
    make = partial(make_hybrid, name, **fixed)
    settings = inspect.signature(make).parameters.values()
    kept = [one for one in settings if one.name not in fixed]
    make.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return make


make_luffy = _half("luffy", ratio=0.0, threshold=0.0, buffer=1)
"""LUFFY (arXiv 2504.14945): demonstrations in the groups of GRPO, one advantage for both."""
make_exgrpo = _half("exgrpo", traces="", demonstrations=0, share=0.0, min_reward=None)
"""ExGRPO (arXiv 2510.02245): prompts that sometimes succeed are asked again, with a success."""


@dataclass
class Mixer(Hooks):
    """Adds rollouts to the groups of a step, and picks prompts to ask again."""

    traces: str | None = None
    """File or run folder of demonstrations; None: no demonstrations."""
    per_group: int = 1
    share: float = 0.0
    min_reward: float | None = None
    success: str = ""
    ratio: float = 0.0
    threshold: float = 0.35
    capacity: int = 10_000
    experience: Experience = field(init=False)
    has_begun: bool = False
    """True once the success of a step was above the threshold."""
    demonstrations: dict[Task, list[Any]] = field(default_factory=dict)
    trainer: Trainer = field(init=False, repr=False, compare=False)
    _asked: dict[str, Prompt] = field(default_factory=dict)
    """The prompts of the step, by group."""
    _again: set[str] = field(default_factory=set)
    """Groups whose prompt is asked again."""
    _news: list[Any] = field(default_factory=list)
    """Results of a step's groups, until they are trained on."""
    _begins: bool = False
    _num_off: int = 0
    _size: int = 0
    """Rollouts of a group."""

    def __post_init__(self) -> None:
        self.experience = Experience(self.capacity)

    def begin(self, trainer: Trainer) -> None:
        """Read the traces and play them.

        Raises ConfigError without traces, or without a component that defines a success.
        """
        self.trainer = trainer
        if self.traces == "":
            raise ConfigError(
                "this algorithm learns from traces: name a file of them, or a run folder, with "
                "--set algorithm.traces=PATH; without traces, take exgrpo or grpo"
            )
        if self.ratio or (self.traces and self.min_reward is None):
            for scorer in trainer.scorers:
                self._ensure_top(scorer)
        if self.traces:
            self.demonstrations = load(read_traces(self.traces), trainer, self._is_success)

    def _ensure_top(self, scorer: Any) -> None:
        name = self.success or scorer.headline
        fault = "" if name == "reward" or name in scorer.ranges else "is not scored"
        tops = () if fault else [_top(scorer, name, n + 1) for n in scorer.schedule.begins]
        if fault or math.inf in tops:
            known = [one for one, (_, top) in scorer.ranges.items() if top < math.inf]
            raise ConfigError(
                f"a success is the greatest value of '{name}', which {fault or 'has none'} in the "
                f"task with the reward {scorer.schedule}: name a component that has one with --set "
                f"algorithm.success=NAME ({', '.join(known) or 'there is none'}); one among the "
                "`metrics` of the task is enough"
            )

    def _is_success(self, rollout: Any) -> bool:
        is_shown = rollout.trajectory.origin is Origin.DEMONSTRATION
        if is_shown and self.min_reward is not None:
            return bool(rollout.reward >= self.min_reward)
        scorer, scored = rollout.world.scorer, rollout.scored
        name = self.success or scorer.headline
        value = scored.reward if name == "reward" else scored.scores.get(name, -math.inf)
        return bool(value >= _top(scorer, name, rollout.episode.step) - _ROUNDING)

    def ask(self, prompts: Sequence[Prompt], step: int) -> list[Prompt]:
        """Return the prompts of a step: known ones last, fewer rollouts where some are added."""
        asked, self._size = list(prompts), prompts[0].num_rollouts
        rng = random.Random(f"{self.trainer.seed}/again/{step}")
        count = _share(self.ratio, len(asked)) if self.has_begun else 0
        drawn = self.experience.draw(count, self._size, rng)
        first = len(asked) - len(drawn)
        # Tasks with a demonstration replace the first ones without, up to their share, within one
        # environment, so that a mixture keeps its shares.
        free = [n for n in range(first) if not self._shown(asked[n])]
        missing = max(0, _share(self.share, len(asked)) - (first - len(free)))
        for n in free:
            known = [index for entry, index in self.demonstrations if entry == asked[n].entry]
            if known and missing:
                asked[n] = replace(asked[n], level=None, index=rng.choice(known))
                missing -= 1
        for n, (entry, level, index) in enumerate(drawn, first):
            asked[n] = replace(asked[n], entry=entry, level=level, index=index)
        self._again = {prompt.group_id for prompt in asked[first:]}
        self._asked = {prompt.group_id: prompt for prompt in asked}
        for n, prompt in enumerate(asked):
            num_added = len(self._demonstrated(prompt, step)) or n >= first
            asked[n] = replace(prompt, num_rollouts=self._size - num_added)
        return asked

    def extend(self, groups: Sequence[Any], step: int) -> list[Any]:
        """Add rollouts to the groups; `metrics` takes in their results after training."""
        replays = self._replays(groups)
        mixed, num_successes, num_scored = list[Any](), 0, 0
        self._news, self._num_off = [], 0
        for group in groups:
            prompt = self._asked[group.id]
            added = []
            if beside := _played(group):
                offered = self._demonstrated(prompt, step)
                offered += [replays[group.id]] if group.id in replays else []
                named = [_renamed(one, f"{group.id}/off{n}", step) for n, one in enumerate(offered)]
                # A prompt that is drawn from the seed may differ this time.
                added = [
                    one
                    for one in named
                    if self._is_success(one) and _prompt_ids(one) == _prompt_ids(beside)
                ]
            self._num_off += len(added)
            mixed.append(replace(group, rollouts=(*group.rollouts, *added)))
            scored = [one for one in group.rollouts if one.reward is not None]
            won = [one for one in scored if self._is_success(one)]
            num_successes, num_scored = num_successes + len(won), num_scored + len(scored)
            if self.ratio and scored:
                again = len(added) if group.id in self._again else 0
                kept = {
                    one.trajectory.rollout_id: take_success(one)
                    for one in won
                    if not one.is_served and len(one.trajectory.segments) == 1
                }  # what an agent played, or what has several segments, is replayed by nobody
                counts = len(won) + again, len(group.rollouts) + again
                self._news.append((_place(prompt), *counts, kept))
        self._begins = num_successes > self.threshold * num_scored
        return mixed

    def metrics(self) -> dict[str, float]:
        """Take in the results of the step's groups after training; return its figures."""
        for news in self._news:
            self.experience.learn(*news)
        self.has_begun |= self._begins
        self._news, self._begins = [], False
        figures = {"off_rollouts": float(self._num_off)}
        if self.ratio:
            known = self.experience
            figures |= {
                "experience_prompts": float(len(known.prompts)),
                "experience_rollouts": float(len(known)),
                "experience_retired": float(len(known.retired)),
                "experience_begun": float(self.has_begun),
            }
        return figures

    def state_dict(self) -> dict[str, Any]:
        """State for a resumed run; demonstrations are read anew."""
        if not self.ratio:
            return {}
        return {"experience": self.experience.state_dict(), "has_begun": self.has_begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        if self.ratio:
            self.experience.load_state_dict(state["experience"])
            self.has_begun = state["has_begun"]

    def _shown(self, prompt: Prompt) -> list[Any]:
        """Demonstrations of a prompt's task; they were played at the last difficulty."""
        is_last = prompt.level is None
        return self.demonstrations.get((prompt.entry, prompt.index), []) if is_last else []

    def _demonstrated(self, prompt: Prompt, step: int) -> list[Any]:
        """The demonstrations of a group; they change with the step if the task has several."""
        shown = self._shown(prompt)
        if not shown or prompt.group_id in self._again:
            return []
        rng = random.Random(f"{self.trainer.seed}/{step}/{prompt.group_id}")
        return rng.sample(shown, min(self.per_group, len(shown), self._size - 1))

    def _replays(self, groups: Sequence[Any]) -> dict[str, Any]:
        """The success that is most certain now, for each prompt that was asked again."""
        beside = {g.id: _played(g) for g in groups if g.id in self._again and _played(g)}
        places = {name: _place(self._asked[name]) for name in beside}
        known = {
            name: [*self.experience.prompts[place].successes.values()]
            for name, place in places.items()
        }
        several = [one.trajectory for some in known.values() if len(some) > 1 for one in some]
        names = (one.rollout_id for one in several)
        entropy_of = dict(zip(names, self._entropies(several), strict=True))
        return {
            name: replayed(
                min(some, key=lambda one: entropy_of.get(one.trajectory.rollout_id, 0.0)),
                beside[name],
            )
            for name, some in known.items()
        }

    def _entropies(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Mean nats per token that the model wrote, under the current policy; 0 without any."""
        probes = [
            (number, Probe(one, turn.start, one.turn_ids(turn), turn.segment))
            for number, one in enumerate(trajectories)
            for turn in one.turns
        ]
        nats: list[list[float]] = [[] for _ in trajectories]
        readings = self.trainer.read([probe for _, probe in probes]) if probes else []
        for (number, _), reading in zip(probes, readings, strict=True):
            nats[number] += reading.entropies
        return [sum(own) / max(1, len(own)) for own in nats]


def _place(prompt: Prompt) -> Place:
    return prompt.entry, prompt.level, prompt.index


def _share(share: float, count: int) -> int:
    """Number of a share of `count`; at least 1 for a share above 0."""
    return max(1, round(share * count)) if share else 0


def _top(scorer: Any, name: str, step: int) -> float:
    """The greatest value of a component, or of the reward at a step."""
    reward = scorer.schedule.at(step)
    ends = reward.between(scorer.ranges) if name == "reward" else scorer.ranges[name]
    return float(ends[1])


def _played(group: Any) -> Any:
    """A rollout of a group whose environment has begun; None without any."""
    return next((one for one in group.rollouts if one.trajectory.turns), None)


def _prompt_ids(rollout: Any) -> tuple[int, ...]:
    trajectory = rollout.trajectory
    return tuple(trajectory.ids[: trajectory.num_prompt_tokens])


def _renamed(rollout: Any, name: str, step: int) -> Any:
    """A rollout as one of a group of this step, with the reward expression of the step."""
    group_id = name.rpartition("/")[0]
    trajectory = replace(rollout.trajectory, rollout_id=name, group_id=group_id)
    schedule, scored = rollout.world.scorer.schedule, rollout.scored
    if len(schedule.expressions) > 1:
        with suppress(KeyError):  # the task lacks a score
            scored = replace(scored, reward=schedule.at(step).evaluate(scored.scores))
    episode = replace(rollout.episode, step=step)
    return replace(rollout, trajectory=trajectory, episode=episode, scored=scored)
