"""The built-in reward components: `format em cover_em f1 fuzzy searches searched retrieved env`.

Owns what each one reads from a finished `Episode` and the values it may return. Components are
pure and know nothing of weights, steps or each other: the expression combines them, the scorer
runs them. The built-in plugin registers each factory by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType

from searchrl.contracts import Reward
from searchrl.core.episode import Episode, Score, Unscored
from searchrl.rewards import answers


@dataclass(slots=True)
class FunctionReward:
    """A reward component made of a function: `score(episode)` with its declared values.

    `values` is the set of values it may return or, with `is_range`, their (low, high).
    """

    name: str
    score: Callable[[Episode], float | Score | Unscored]
    values: tuple[float, ...]
    is_range: bool = False
    description: str = ""

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score one finished episode."""
        return self.score(episode)


def _against_golds(
    compare: Callable[[str | None, Sequence[str]], float], episode: Episode
) -> float | Unscored:
    if not episode.task.answers:
        # 0 would be a wrong and constant reward.
        return Unscored(f"task {episode.task.id!r} has no gold answers to compare with")
    return compare(episode.final_answer, episode.task.answers)


def _searches(episode: Episode) -> float:
    return float(episode.num_searches)


def _searched(episode: Episode) -> float:
    return float(episode.num_searches > 0)


def _retrieved(episode: Episode) -> float:
    gold = set(episode.task.gold_ids)
    if not gold:
        return _searched(episode)
    found = gold & {passage.id for passage in episode.passages}
    return 1.0 if found == gold else 0.5 if found else 0.0


make_format = partial(FunctionReward, "format", attrgetter("format_score"), (0.0, 0.5, 1.0))
"""The protocol's format verdict."""
make_em = partial(FunctionReward, "em", partial(_against_golds, answers.em), (0.0, 1.0))
"""Exact match with a gold answer (N1)."""
make_cover_em = partial(
    FunctionReward, "cover_em", partial(_against_golds, answers.cover_em), (0.0, 1.0)
)
"""A gold answer is part of the answer, in whole tokens (N1)."""
make_f1 = partial(
    FunctionReward, "f1", partial(_against_golds, answers.f1), (0.0, 1.0), is_range=True
)
"""Token F1 with the best gold answer (N1)."""
make_fuzzy = partial(
    FunctionReward, "fuzzy", partial(_against_golds, answers.fuzzy), (0.0, 0.5, 1.0)
)
"""1 for an exact answer, 0.5 for a near one, 0 otherwise (N1)."""
make_searches = partial(FunctionReward, "searches", _searches, (0.0, math.inf), is_range=True)
"""The number of searches, for costs."""
make_searched = partial(FunctionReward, "searched", _searched, (0.0, 1.0))
"""1 if the agent searched at least once."""
make_retrieved = partial(FunctionReward, "retrieved", _retrieved, (0.0, 0.5, 1.0))
"""Which gold passages were shown: all, some or none."""
make_env = partial(
    FunctionReward, "env", attrgetter("env_return"), (-math.inf, math.inf), is_range=True
)
"""The sum of the environment's own rewards."""

BUILTIN_REWARDS: Mapping[str, Callable[[], Reward]] = MappingProxyType(
    {
        "format": make_format,
        "em": make_em,
        "cover_em": make_cover_em,
        "f1": make_f1,
        "fuzzy": make_fuzzy,
        "searches": make_searches,
        "searched": make_searched,
        "retrieved": make_retrieved,
        "env": make_env,
    }
)
"""Name -> factory without arguments, in the order of the documentation."""
