"""The group reward `judge_rank`: the answers of a group, ranked by the judge.

Owns nothing but the component: what the judge is shown, in which order and how often, is
`searchrl.rewards.judged`. A judge that cannot rank judges the answers one by one.
"""

from __future__ import annotations

from functools import partial

from searchrl.contracts import Judge
from searchrl.rewards import FunctionGroupReward, ask_ranking


def make_ranked(judge: Judge) -> FunctionGroupReward:
    """The component `judge_rank`."""
    rank = partial(ask_ranking, judge)
    return FunctionGroupReward("judge_rank", rank, (0.0, 1.0), is_range=True)
