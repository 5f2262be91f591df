"""Fixed sequences on several collections, and the best of them: chosen on training questions.

Owns the choice, and what an oracle over the best kinds of sequences would win.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.comparison.opening import Envs
from searchrl_control.comparison.oracle import Margin, measure_margin
from searchrl_control.comparison.sequences import (
    SINGLE_PASS,
    Values,
    as_start,
    choose_best,
    choose_kinds,
    list_sequences,
    means_of,
    name_of,
    play_sequences,
)
from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.worlds import World

LONG = 40
"""Passages of the lists that the control of an oracle re-draws."""

Say = Callable[[str], None]


@dataclass(slots=True)
class FixedSequences:
    """Every fixed sequence on the training questions of some collections.

    Args:
        envs: the collections.
        only: leave out all other actions; None: none.
        say: told what takes a while.
    """

    envs: Envs
    only: Sequence[Action] | None = None
    say: Say = lambda text: None
    sequences: Mapping[str, tuple[int, ...]] = field(init=False)
    """By name: the numbers of its actions after Search."""
    training: Mapping[str, Values] = field(init=False)

    def __post_init__(self) -> None:
        env = next(iter(self.envs.values()))
        found = list_sequences(env.actions, env.max_steps, self.only)
        self.sequences = {name_of(env.actions, one): one for one in found}
        self.training = self._play(TRAIN)

    @property
    def pooled(self) -> str:
        """The best sequence on the pooled training questions."""
        return choose_best(list(self.training.values()))

    @property
    def own(self) -> dict[str, str]:
        """The best sequence of each collection on its training questions."""
        return {name: choose_best([values]) for name, values in self.training.items()}

    def test(self) -> dict[str, Values]:
        """Every sequence on the test questions: to compare with, never to choose by."""
        return self._play(TEST)

    def describe(self) -> dict[str, Any]:
        """What was found on training questions, as JSON."""
        means = {"pooled": means_of(list(self.training.values()))}
        means |= {name: means_of([values]) for name, values in self.training.items()}
        best = {"pooled": self.pooled, **self.own}
        return {
            "sequences": len(self.sequences),
            "questions": {name: len(of[SINGLE_PASS]) for name, of in self.training.items()},
            "best": {
                name: {
                    "sequence": one,
                    "start": as_start(one),
                    "ndcg": means[name][one],
                    "single_pass": means[name][SINGLE_PASS],
                }
                for name, one in best.items()
            },
            "ndcg": means,
        }

    def measure_oracle(self, split: str, values: Mapping[str, Values]) -> dict[str, Any]:
        """The oracle over the best kinds of sequences, and its control; pooled and of each.

        Args:
            split: whose questions.
            values: of that split, every sequence.
        """
        kinds = choose_kinds(means_of(list(self.training.values())))
        if len(kinds) < 2:
            return {}
        told: dict[str, Any] = {}
        parts: dict[str, tuple[Values, dict[str, Any], dict[str, Any]]] = {}
        for name, env in self.envs.items():
            lists, qrels = self._long_lists(env, split, kinds[0])
            parts[name] = ({kind: values[name][kind] for kind in kinds}, lists, qrels)
            told[name] = _tell(measure_margin(parts[name][0], kinds[0], lists, qrels))
        pooled_values = {
            kind: {
                f"{name}/{q}": v for name, part in parts.items() for q, v in part[0][kind].items()
            }
            for kind in kinds
        }
        lists, qrels = (
            {f"{name}/{q}": one for name, part in parts.items() for q, one in part[at].items()}
            for at in (1, 2)
        )
        pooled = _tell(measure_margin(pooled_values, kinds[0], lists, qrels))
        return {"kinds": kinds, "pooled": pooled, "each": told}

    def _long_lists(
        self, env: RetrievalControlEnv, split: str, name: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        world, sequence = env.world, self.sequences[name]
        questions = world.questions(split)
        lists = {
            one.id: world.positions.list_after(world.asker(one), sequence, LONG)
            for one in questions
        }
        return lists, {one.id: one.qrels for one in questions}

    def _play(self, split: str) -> dict[str, Values]:
        found = {}
        for name, env in self.envs.items():
            self.say(_announce(env.world, split, len(self.sequences)))
            found[name] = play_sequences(env.world, split, list(self.sequences.values()))
        return found


def _announce(world: World, split: str, count: int) -> str:
    questions = len(world.questions(split))
    return f"{world.name}: {count:,} sequences on {questions:,} questions of {split} …"


def _tell(margin: Margin) -> dict[str, float]:
    return {**margin._asdict(), "learnable": margin.learnable}
