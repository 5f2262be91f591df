"""Generalised advantage estimation (Schulman et al. 2016, equations 11 to 16) of many steps.

    delta_t     = r_t + gamma * V_(t+1) - V_t
    advantage_t = delta_t + gamma * lambda * advantage_(t+1)
    target_t    = advantage_t + V_t

Owns where an episode ends: `is_end[t]` is true of the *last* step of an episode, so nothing of step
t + 1 reaches step t. (Published code stored the flag with the next observation, one step late: the
first value of one episode was then part of the last advantage of another.) An episode that was cut
by a limit goes on in `after`; one that ended has 0 there. Pure functions. Caller: the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Estimates(NamedTuple):
    """Advantages, and what the values are regressed to: one per step each."""

    advantages: tuple[float, ...]
    targets: tuple[float, ...]


def estimate(
    rewards: Sequence[float],
    values: Sequence[float],
    is_end: Sequence[bool],
    after: Sequence[float],
    *,
    discount: float = 1.0,
    decay: float = 0.95,
) -> Estimates:
    """The advantages and targets of episodes that stand one after another.

    Args:
        rewards: of each step.
        values: a critic's, of what was seen before each step.
        is_end: whether the episode ended with this step, for whatever reason.
        after: a critic's value of what came after the last step of an episode that was cut; 0
            where it terminated. Only read where `is_end` is true.
        discount: gamma.
        decay: lambda.

    Raises:
        ValueError: the lengths differ, or the last step is no end of an episode.
    """
    if len({len(rewards), len(values), len(is_end), len(after)}) != 1:
        raise ValueError("expected one reward, value, end and value after it for every step")
    if len(is_end) and not is_end[-1]:
        raise ValueError("the last episode is not over: its last step must be an end")
    advantages = [0.0] * len(rewards)
    later = 0.0
    for step in range(len(rewards) - 1, -1, -1):
        if is_end[step]:
            next_value, later = after[step], 0.0
        else:
            next_value = values[step + 1]
        later = rewards[step] + discount * next_value - values[step] + discount * decay * later
        advantages[step] = later
    targets = tuple(gained + value for gained, value in zip(advantages, values, strict=True))
    return Estimates(tuple(advantages), targets)
