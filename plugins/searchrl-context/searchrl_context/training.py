"""`resum` and `supo`: the advantage of the end, on every context of a rollout."""

from __future__ import annotations

from functools import partial

from searchrl.algorithms import (
    Algorithm,
    Column,
    StepScores,
    grpo_advantages,
    ppo_clip_loss,
)

_WRITTEN = ("summary", "fold")


def make_resum(*, mask_summaries: bool = False) -> Algorithm:
    """ReSum-GRPO (arXiv 2509.13313): GRPO, where all contexts have their rollout's advantage.

    Args:
        mask_summaries: turns that write summaries get no gradient: a control. They still count in
            the denominator. One that ended the rollout, so that no context begins with it, is
            trained: the record of tokens cannot tell it from another turn.
    """
    own = partial(context_advantages, mask_summaries=mask_summaries)
    return Algorithm("resum", own, ppo_clip_loss)


def make_supo(*, mask_summaries: bool = False) -> Algorithm:
    """SUPO (arXiv 2510.06727): as `resum`, and a rollout that a limit ended gets no gradient.

    Args:
        mask_summaries: see `resum`.
    """
    own = partial(context_advantages, mask_summaries=mask_summaries, mask_cut=True)
    return Algorithm("supo", own, ppo_clip_loss)


def context_advantages(
    step: StepScores, *, mask_summaries: bool = False, mask_cut: bool = False
) -> list[Column]:
    """Return GRPO's advantage for every turn of each rollout; 0 for what is masked."""
    columns = []
    for advantage, rollout in zip(grpo_advantages(step), step.rollouts, strict=True):
        turns, forks = rollout.trajectory.turns, rollout.trajectory.forks
        # A context begins with what the turn before it wrote.
        masked = {number - 1 for number, why in forks if mask_summaries and why in _WRITTEN}
        value = 0.0 if mask_cut and rollout.is_cut else float(advantage)
        columns.append(Column([0.0 if turn.index in masked else value for turn in turns]))
    return columns
