"""`tree_grpo` and `arpo`: where a tree branches, and what its turns are worth.

A turn that several rollouts share is trained once, with the mean over the leaves behind it. The
published code trains it once for each leaf: the same gradient, times the number of leaves, where
all tokens weigh alike (`algorithm.reduction: constant`). With `sequence-mean` a branch weighs as
one rollout, however few turns are its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from random import Random
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from searchrl import ConfigError
from searchrl.algorithms import (
    Algorithm,
    Column,
    Hooks,
    Probe,
    Prompt,
    StepScores,
    Trainer,
    ppo_clip_loss,
)
from searchrl_credit.gain import Gain
from searchrl_credit.parts import Forest, over_leaves, scored, to_columns, within

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Asked = list[tuple[Any, int]]


class Branching(Hooks):
    """Begins with fewer chains than `rollout.group_size`, and adds branches to each group."""

    trainer: Trainer

    def __init__(self, chains: int) -> None:
        self.chains = chains

    def begin(self, trainer: Trainer) -> None:
        """Remember the run."""
        self.trainer = trainer

    def ask(self, prompts: Sequence[Prompt], step: int) -> Sequence[Prompt]:
        """Return the prompts, each with so many chains."""
        self.size = prompts[0].num_rollouts
        if self.size < self.chains:
            raise ConfigError(
                f"algorithm.chains = {self.chains} is more than rollout.group_size = {self.size}; "
                "raise that, or lower this"
            )
        return [replace(one, num_rollouts=self.chains) for one in prompts]

    def branch(self, groups: Any, number: int) -> Asked:
        """See `Hooks`: what `choose` says of each group."""
        return [one for group in groups for one in self.choose(list(group.rollouts), number)]

    def draws(self, rollouts: Sequence[Any], number: int) -> Random:
        """Random numbers of a group and a round."""
        return Random(f"{self.trainer.seed}/{rollouts[0].trajectory.group_id}/{number}")

    @abstractmethod
    def choose(self, rollouts: list[Any], number: int) -> Asked:
        """Return what is continued in round `number` of a group."""


def turns_of(rollout: Any) -> range:
    """Turns of an episode that a rollout sampled itself, as numbers in the episode."""
    first = rollout.trajectory.num_kept
    return range(first, first + len(rollout.trajectory.turns))


def make_tree_grpo(
    *,
    chains: Count = 2,
    expansions: Count = 2,
    rounds: Count = 1,
    leaves: Count = 3,
    gain: Annotated[float, Field(ge=0)] = 0.0,
) -> Algorithm:
    """Tree-GRPO (arXiv 2509.21240): advantages within the tree and within the prompt.

    A tree of one leaf has the advantage within the prompt alone (the published code adds its reward
    as it is).

    Args:
        chains: trees of a prompt; each begins as a chain.
        expansions: turns of a tree that are continued in a round, drawn with replacement.
        rounds: how often that is done.
        leaves: most leaves of a tree that count; drawn.
        gain: weight of the turn's gain as `igpo` has it, normalised in the group.
    """
    hooks = Trees(chains, expansions, rounds, leaves, gain)
    return Algorithm("tree_grpo", hooks.advantages, ppo_clip_loss, hooks=hooks)


class Trees(Branching):
    """Branches behind turns that are drawn uniformly."""

    def __init__(self, chains: int, expansions: int, rounds: int, leaves: int, gain: float) -> None:
        super().__init__(chains)
        self.expansions, self.rounds, self.leaves, self.gain = expansions, rounds, leaves, gain
        self.gains = Gain(1.0, "before")

    def begin(self, trainer: Trainer) -> None:
        """Remember the run."""
        super().begin(trainer)
        if self.gain:
            self.gains.begin(trainer)

    def choose(self, rollouts: list[Any], number: int) -> Asked:
        """Return turns that are not the last of their path, drawn in each tree."""
        if number >= self.rounds:
            return []
        rng, forest, asked = self.draws(rollouts, number), Forest(rollouts), Asked()
        for root in dict.fromkeys(map(forest.sampler, rollouts)):
            inner = [
                (one, turn + 1)
                for one in rollouts
                if forest.sampler(one) == root and one.is_scored
                for turn in turns_of(one)[:-1]
            ]
            asked += rng.choices(inner, k=self.expansions) if inner else []
        return asked

    def advantages(self, step: StepScores) -> list[Column]:
        """Return, per turn, the mean over the leaves behind it."""
        rollouts, groups, rewards = scored(step)
        forest = Forest(step.rollouts)
        roots = [forest.sampler(one) for one in rollouts]
        kept = self._kept([one.trajectory.rollout_id for one in rollouts], roots)
        rows = [n for n, is_kept in enumerate(kept) if is_kept]
        names = [rollouts[n].trajectory.rollout_id for n in rows]
        values = [rewards[n] for n in rows]
        of_prompt = within([groups[n] for n in rows], values)
        of_tree = within([roots[n] for n in rows], values)
        both = (a + b for a, b in zip(of_prompt, of_tree, strict=True))
        columns = to_columns(over_leaves(step, dict(zip(names, both, strict=True))))
        return self._with_gains(step, columns) if self.gain else columns

    def _with_gains(self, step: StepScores, columns: list[Column]) -> list[Column]:
        """Add its gain to each turn but the last of a scored rollout's own."""
        rollouts, groups, _ = scored(step)
        gains = self.gains.gains(rollouts)
        keys = [group for group, own in zip(groups, gains, strict=True) for _ in own]
        made = iter(within(keys, [one for own in gains for one in own]))
        sizes = iter(map(len, gains))
        added = [[next(made) for _ in range(next(sizes))] if s else [] for s in step.is_scored]
        return [
            Column([a + self.gain * b for a, b in zip_longest(column.values, own, fillvalue=0.0)])
            for column, own in zip(columns, added, strict=True)
        ]

    def _kept(self, names: Sequence[str], roots: Sequence[str]) -> list[bool]:
        chosen: set[str] = set()
        for root in dict.fromkeys(roots):
            tree = [name for name, own in zip(names, roots, strict=True) if own == root]
            chosen |= set(Random(f"leaves/{root}").sample(tree, min(len(tree), self.leaves)))
        return [name in chosen for name in names]


def make_arpo(
    *,
    chains: Count = 8,
    weight: float = 0.2,
    threshold: Share = 0.5,
    first_tokens: Count = 20,
    log_vocab: Annotated[float, Field(gt=0)] = 11.93,
) -> Algorithm:
    """ARPO (arXiv 2507.19849): branches where a turn begins less certain than the first one.

    A turn is begun anew if u - weight * (H - H of the first turn) is at most `threshold`, with u
    uniform in 0 to 1. Places that are left are filled with fresh chains. Entropies are those of the
    whole distribution; the published code has the ten likeliest tokens.

    Args:
        chains: rollouts of a prompt that begin anew; `rollout.group_size` is the number of all.
        weight: weight of the difference of entropies.
        threshold: chance of a branch where the entropies are equal.
        first_tokens: tokens of a turn whose mean entropy is H.
        log_vocab: divisor of the entropies (nats): the logarithm of the vocabulary, here Qwen's.
    """
    hooks = Uncertain(chains, weight, threshold, first_tokens, log_vocab)
    return Algorithm(
        "arpo", lambda step: to_columns(group_values(step)), ppo_clip_loss, hooks=hooks
    )


def group_values(step: StepScores) -> list[list[float | None]]:
    """Return, per turn, the mean over the leaves behind it of the advantage in the group."""
    rollouts, groups, rewards = scored(step)
    names = [one.trajectory.rollout_id for one in rollouts]
    return over_leaves(step, dict(zip(names, within(groups, rewards), strict=True)))


class Uncertain(Branching):
    """Branches before turns that begin uncertain."""

    def __init__(
        self, chains: int, weight: float, threshold: float, first_tokens: int, log_vocab: float
    ) -> None:
        super().__init__(chains)
        self.weight, self.threshold = weight, threshold
        self.first_tokens, self.log_vocab = first_tokens, log_vocab

    def branch(self, groups: Any, number: int) -> Asked:
        """See `Hooks`."""
        self.entropies = self._read([one for group in groups for one in group.rollouts])
        return super().branch(groups, number)

    def choose(self, rollouts: list[Any], number: int) -> Asked:
        """Return branches before turns of the chains, and fresh chains for the places left."""
        room = 0 if number else self.size - len(rollouts)
        rng, asked = self.draws(rollouts, number), Asked()
        for one in rollouts:
            first, *later = self.entropies.get(one.trajectory.rollout_id) or [0.0]
            for turn, entropy in enumerate(later, 1):
                chance = rng.random() - self.weight * (entropy - first)
                if min(max(chance, 0.0), 1.0) <= self.threshold:
                    asked.append((one, turn))
        rng.shuffle(asked)
        return [*asked, *[(rollouts[0], 0)] * room][:room]

    def _read(self, rollouts: Sequence[Any]) -> dict[str, list[float]]:
        """The entropy with which each turn of scored rollouts begins."""
        probes, names = list[Probe](), list[str]()
        for one in rollouts:
            for turn in one.trajectory.turns if one.is_scored and not one.is_served else ():
                text = one.trajectory.turn_ids(turn)[: self.first_tokens]
                probes.append(Probe(one.trajectory, turn.start, text, turn.segment))
                names.append(one.trajectory.rollout_id)
        found: dict[str, list[float]] = {}
        for name, reading in zip(names, self.trainer.read(probes), strict=True):
            found.setdefault(name, []).append(fmean(reading.entropies) / self.log_vocab)
        return found
