"""The comparison as a whole: networks against everything that decides nothing, on test questions.

Owns its order. All that is chosen (the best sequences, the checkpoint of a run) is chosen on
training questions; the test questions are played with what was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from searchrl import ConfigError, DamagedError, RunFolderError
from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.comparison.fixed import FixedSequences, Say
from searchrl_control.comparison.networks import Board, Watched
from searchrl_control.comparison.opening import Envs
from searchrl_control.comparison.paired import ByCollection, compare_each, compare_pooled
from searchrl_control.comparison.playing import (
    Act,
    Played,
    act_by_rule,
    act_fixed,
    play,
    worth_of,
)
from searchrl_control.comparison.runs import TrainedRun, Weights, load_network
from searchrl_control.comparison.sequences import SINGLE_PASS, Values
from searchrl_control.comparison.table import row_of
from searchrl_control.environment.actions import Action

SINGLE, RULE = "single pass", "heuristic"
POOLED, OWN = "best fixed sequence", "best of each collection"
AGENT = "agent"

COLLAPSED = 0.98
"""A network that ends in so many of its decisions has collapsed."""


class Swept(NamedTuple):
    """A checkpoint on the training questions."""

    weights: Weights
    row: Mapping[str, Any]
    choices: Mapping[str, float]
    """Shares of the decisions between several legal actions, by action."""
    least: float

    @property
    def ndcg(self) -> float:
        """The mean nDCG@k."""
        return float(self.row["ndcg"]["value"])

    @property
    def terminate(self) -> float:
        """The share of the decisions that end the episode."""
        return float(self.choices.get(str(Action.TERMINATE), 0.0))

    @property
    def has_collapsed(self) -> bool:
        """Whether some legal action has no probability left, or nearly all decisions are to end."""
        return self.least <= 0 or self.terminate >= COLLAPSED

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "checkpoint": self.weights.name,
            "train": dict(self.row),
            "choices": dict(self.choices),
            "terminate": self.terminate,
            "least_probability": self.least,
            "has_collapsed": self.has_collapsed,
        }


@dataclass(slots=True)
class Study:
    """The test questions of some collections, and all that is compared on them.

    Args:
        fixed: every fixed sequence on the training questions.
    """

    fixed: FixedSequences
    on_test: Mapping[str, Values] = field(init=False)
    played: dict[str, tuple[Played, ...]] = field(init=False)
    """By name of a policy, its episodes on the test questions of all collections."""

    def __post_init__(self) -> None:
        if empty := [name for name, env in self._envs.items() if not env.world.questions(TEST)]:
            raise ConfigError(f"the collection '{empty[0]}' has no test questions")
        self.on_test = self.fixed.test()
        self.played = {
            SINGLE: self._play(dict.fromkeys(self._envs, SINGLE_PASS)),
            RULE: self._play(None),
            POOLED: self._play(dict.fromkeys(self._envs, self.fixed.pooled)),
            OWN: self._play(self.fixed.own),
        }

    @property
    def _envs(self) -> Envs:
        return self.fixed.envs

    def describe(self) -> dict[str, Any]:
        """What is compared with, as JSON: the sequences, and what an oracle over them would win."""
        pooled = {
            name: sum(sum(of[name].values()) for of in self.on_test.values()) / self.num_questions
            for name in self.fixed.sequences
        }
        highest = max(pooled, key=lambda name: pooled[name])
        told = self.fixed.describe()
        return {
            **{key: told[key] for key in ("sequences", "best")},
            "questions": {
                name: {split: len(env.world.questions(split)) for split in (TRAIN, TEST)}
                for name, env in self._envs.items()
            },
            "notes": {name: list(env.world.judged.notes) for name, env in self._envs.items()},
            "drawn_split": {
                name: env.world.judged.halves is not None for name, env in self._envs.items()
            },
            "on_test": {
                "ndcg": pooled,
                "highest": {"sequence": highest, "ndcg": pooled[highest]},
                "oracle_over_all": self._oracle_over_all(),
            },
            "oracle": self.fixed.measure_oracle(TEST, self.on_test),
        }

    @property
    def num_questions(self) -> int:
        """Test questions of all collections."""
        return sum(len(env.world.questions(TEST)) for env in self._envs.values())

    def rows(self, agents: Mapping[str, Sequence[Played]]) -> dict[str, dict[str, Any]]:
        """The tables, pooled and of each collection: a row for each policy."""
        everybody = {**self.played, **agents}
        tables = {"pooled": {name: row_of(played) for name, played in everybody.items()}}
        for label in self._envs if len(self._envs) > 1 else ():
            tables[label] = {
                name: row_of([one for one in played if one.collection == label])
                for name, played in everybody.items()
            }
        return tables

    def against(self, agent: Sequence[Played]) -> dict[str, Any]:
        """An agent minus each of the others: paired, pooled by strata and of each collection."""
        values: ByCollection = worth_of(agent)
        others = {name: worth_of(played) for name, played in self.played.items()}
        return {
            name: {"pooled": compare_pooled(values, of), "each": compare_each(values, of)}
            for name, of in others.items()
        }

    def _play(self, chosen: Mapping[str, str] | None) -> tuple[Played, ...]:
        """The episodes of the sequences of these names; of the heuristic without any."""

        def act(name: str) -> Act:
            actions = self._envs[name].actions
            if chosen is None:
                return act_by_rule(actions)
            return act_fixed(actions, self.fixed.sequences[chosen[name]])

        return tuple(
            chain.from_iterable(play(env, TEST, act(name)) for name, env in self._envs.items())
        )

    def _oracle_over_all(self) -> float:
        """The mean of the best sequence of every test question."""
        total = 0.0
        for of in self.on_test.values():
            columns = zip(*(values.values() for values in of.values()), strict=True)
            total += sum(map(max, columns))
        return total / self.num_questions


class Boards:
    """The questions of a split of all collections, for networks.

    Args:
        envs: the collections.
        split: whose questions.
    """

    def __init__(self, envs: Envs, split: str) -> None:
        self._boards = [Board(env, split) for env in envs.values()]

    def play(self, run: TrainedRun, weights: Weights) -> list[Watched]:
        """The episodes of the network of a run on each collection."""
        network = load_network(run, weights, self._boards[0].space)
        return [board.play(network) for board in self._boards]

    def sweep(self, run: TrainedRun, say: Say) -> list[Swept]:
        """Every checkpoint of a run on these questions, in the order of its steps.

        Damaged ones are left out, and `say` is told.

        Raises:
            RunFolderError: none of them is whole.
        """
        found = []
        for weights in run.weights:
            try:
                found.append(_sweep(weights, self.play(run, weights)))
            except DamagedError as error:
                say(f"left out: {error}")
        if not found:
            raise RunFolderError(f"the run '{run.path}' has no checkpoint that is whole")
        return found


def choose_checkpoint(swept: Sequence[Swept]) -> Swept:
    """The checkpoint with the highest nDCG@k on training questions; of equals, the earliest."""
    return max(swept, key=lambda one: one.ndcg)


def join(watched: Sequence[Watched]) -> tuple[Played, ...]:
    """The episodes of all collections."""
    return tuple(chain.from_iterable(one.played for one in watched))


def _sweep(weights: Weights, watched: Sequence[Watched]) -> Swept:
    total = sum(one.num_choices for one in watched)
    names = dict.fromkeys(chain.from_iterable(one.choices for one in watched))
    choices = {name: sum(one.choices.get(name, 0) for one in watched) / total for name in names}
    return Swept(
        weights,
        row_of(join(watched)),
        dict(sorted(choices.items(), key=lambda pair: -pair[1])),
        min(one.least for one in watched),
    )
