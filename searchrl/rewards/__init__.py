"""Rewards: components, answer scoring, the expression language and the scorer.

Re-exports the names other floors use. `answers` compares answers, `components` holds the
built-in components, `expression` reads `0.2*format+em`, `scorer` runs and combines them. Nothing
here knows tokens, groups or models.
"""

from searchrl.rewards.components import BUILTIN_REWARDS, FunctionGroupReward, FunctionReward
from searchrl.rewards.expression import (
    Expression,
    RewardSchedule,
    UnknownComponentError,
    parse_expression,
)
from searchrl.rewards.scorer import ScoredEpisode, Scorer

__all__ = [
    "BUILTIN_REWARDS",
    "Expression",
    "FunctionGroupReward",
    "FunctionReward",
    "RewardSchedule",
    "ScoredEpisode",
    "Scorer",
    "UnknownComponentError",
    "parse_expression",
]
