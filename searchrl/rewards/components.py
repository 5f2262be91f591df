"""The built-in reward components: `format em cover_em f1 fuzzy searches searched retrieved env`.

Owns what each one reads from a finished `Episode` and the values it may return. Components are
pure and know nothing of weights, steps or each other: the expression combines them, the scorer
runs them. Registered through the same hook as any plugin's, from `BUILTIN_REWARDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


def _format(episode: Episode) -> float:
    return episode.format_score


def _against_golds(
    compare: Callable[[str | None, Sequence[str]], float], episode: Episode
) -> float | Unscored:
    if not episode.task.answers:
        # 0 here would be a constant reward that nobody notices.
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


def _env(episode: Episode) -> float:
    return episode.env_return


_INF = math.inf

# name: (function, values, is_range, description), in the order of the documentation.
_BUILTINS: Mapping[
    str, tuple[Callable[[Episode], float | Unscored], tuple[float, ...], bool, str]
] = {
    "format": (_format, (0.0, 0.5, 1.0), False, "the protocol's format verdict"),
    "em": (
        partial(_against_golds, answers.em),
        (0.0, 1.0),
        False,
        "exact match with a gold answer (N1)",
    ),
    "cover_em": (
        partial(_against_golds, answers.cover_em),
        (0.0, 1.0),
        False,
        "a gold answer stands in the answer, whole tokens (N1)",
    ),
    "f1": (
        partial(_against_golds, answers.f1),
        (0.0, 1.0),
        True,
        "token F1 with the best gold answer (N1)",
    ),
    "fuzzy": (
        partial(_against_golds, answers.fuzzy),
        (0.0, 0.5, 1.0),
        False,
        "1 exact, 0.5 near, 0 otherwise (N1)",
    ),
    "searches": (_searches, (0.0, _INF), True, "number of searches, for costs"),
    "searched": (_searched, (0.0, 1.0), False, "1 if the agent searched at least once"),
    "retrieved": (_retrieved, (0.0, 0.5, 1.0), False, "gold passages shown: all, some or none"),
    "env": (_env, (-_INF, _INF), True, "sum of the environment's own rewards"),
}


def make_builtin(name: str) -> Reward:
    """Make the built-in component called `name` (KeyError for any other name)."""
    score, values, is_range, description = _BUILTINS[name]
    return FunctionReward(name, score, values, is_range, description)


BUILTIN_REWARDS: Mapping[str, Callable[[], Reward]] = MappingProxyType(
    {name: partial(make_builtin, name) for name in _BUILTINS}
)
"""Name -> factory without arguments, in the order of the documentation."""
