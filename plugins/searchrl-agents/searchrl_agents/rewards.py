"""The reward `agent`: what an agent posted to `…/searchrl/reward`."""

from __future__ import annotations

import math

from searchrl.contracts import Episode, Unscored
from searchrl.rewards import FunctionReward


def make_agent() -> FunctionReward:
    """The number that the agent of an episode posted last; unscored if it posted none."""

    def score(episode: Episode) -> float | Unscored:
        value = episode.signals.get("agent_reward")
        return Unscored("its agent posted no reward") if value is None else value

    return FunctionReward("agent", score, (-math.inf, math.inf), is_range=True)
