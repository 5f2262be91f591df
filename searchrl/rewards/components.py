"""The built-in reward components: answers, format, searches, and which evidence was shown.

Components are pure functions of a finished `Episode`: the expression combines them, the scorer
runs them. The built-in plugin registers each factory by its name (`make.em`).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace

from searchrl.contracts.scoring import Reward
from searchrl.core.episode import Episode, Score, Task, Unscored
from searchrl.rewards import answers

SIGNAL = "signal:"
"""Prefix of a metric that is a signal of the environment."""


_Score = Callable[[Episode], float | Score | Unscored]


@dataclass(slots=True)
class FunctionReward:
    """A reward component made of a function: `score(episode)` with its declared values.

    `values` is the set of values it may return or, with `is_range`, their (low, high). `applies`
    picks the tasks that it scores; None: all. `figure` makes the name of its metric from the name
    of the judge; None: the component's own.
    """

    name: str
    score: _Score
    values: tuple[float, ...]
    is_range: bool = False
    applies: Callable[[Task], bool] | None = None
    figure: Callable[[str], str] | None = None

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score one finished episode."""
        return self.score(episode)


@dataclass(slots=True)
class FunctionGroupReward:
    """A group reward made of a function: `score(episodes)` with its declared values.

    `values` and `is_range` hold for each score.
    """

    name: str
    score: Callable[[Sequence[Episode]], Sequence[float | Score | Unscored]]
    values: tuple[float, ...]
    is_range: bool = False

    def __call__(self, episodes: Sequence[Episode]) -> Sequence[float | Score | Unscored]:
        """Score the episodes of one group."""
        return self.score(episodes)


def _against_golds(
    name: str, values: tuple[float, ...], is_range: bool = False, /, *, normalization: str = "N1"
) -> FunctionReward:
    compare: answers.Compare = getattr(answers, name)

    def score(episode: Episode) -> float | Unscored:
        if not episode.task.answers:
            # 0 would be a wrong and constant reward.
            return Unscored(f"task {episode.task.id!r} has no gold answers to compare with")
        return compare(episode.final_answer, episode.task.answers, normalization)

    return FunctionReward(name, score, values, is_range)


def _make_follows(*, normalization: str = "N1") -> FunctionReward:
    """The component `follows`: the answer is what the changed passages say."""

    def score(episode: Episode) -> float:
        changed = episode.task.changed_answers
        return answers.em(episode.final_answer, changed, normalization)

    return FunctionReward("follows", score, (0.0, 1.0), applies=attrgetter("changed_answers"))


def _shown(episode: Episode) -> float | Unscored:
    """Share of the gold passages that were shown; Unscored where none are known."""
    gold = set(episode.task.gold_ids)
    if not gold:
        return Unscored(f"task {episode.task.id!r} has no gold passages to compare with")
    return len(gold & {passage.id for passage in episode.passages}) / len(gold)


def make_signal(metric: str) -> FunctionReward:
    """The component of a metric `signal:NAME`: a number of the environment; else Unscored."""
    name = metric.removeprefix(SIGNAL)

    def read(episode: Episode) -> float | Unscored:
        value = episode.signals.get(name)
        return Unscored(f"the episode has no signal {name!r}") if value is None else value

    return FunctionReward(metric, read, (-math.inf, math.inf), is_range=True)


def _all_shown(episode: Episode) -> float | Unscored:
    share = _shown(episode)
    return share if isinstance(share, Unscored) else float(share == 1.0)


def _is_won(episode: Episode) -> float:
    return float(any(turn.reward > 0 for turn in episode.turns[-1:]))


def _has_gold(task: Task) -> bool:
    return bool(task.gold_ids)


_FORMAT = FunctionReward("format", attrgetter("format_score"), (0.0, 0.5, 1.0))
BUILTIN_REWARDS: Mapping[str, Callable[[], Reward]] = MappingProxyType(
    {
        "format": functools.partial(copy.copy, _FORMAT),
        "em": functools.partial(_against_golds, "em", (0.0, 1.0)),
        "cover_em": functools.partial(_against_golds, "cover_em", (0.0, 1.0)),
        "f1": functools.partial(_against_golds, "f1", (0.0, 1.0), True),
        "fuzzy": functools.partial(_against_golds, "fuzzy", (0.0, 0.5, 1.0)),
        "follows": functools.partial(_make_follows),
    }
    | {
        one.name: functools.partial(copy.copy, one)
        for one in (
            FunctionReward("searches", lambda e: float(e.num_searches), (0.0, math.inf), True),
            FunctionReward("searched", lambda e: float(e.num_searches > 0), (0.0, 1.0)),
            FunctionReward("support_recall", _shown, (0.0, 1.0), True, _has_gold),
            FunctionReward("all_gold", _all_shown, (0.0, 1.0), False, _has_gold),
            FunctionReward("success", _is_won, (0.0, 1.0)),
            FunctionReward("env", attrgetter("env_return"), (-math.inf, math.inf), is_range=True),
        )
    }
)
"""Name -> factory without arguments, in the order of the documentation."""

make = SimpleNamespace(**BUILTIN_REWARDS)
"""The same factories as attributes, for import strings."""
