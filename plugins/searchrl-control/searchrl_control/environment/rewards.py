"""The component `list_judge`: what a judge says of the list an episode ended with.

Owns what a judge reads in place of a final answer: the first passages.
"""

from __future__ import annotations

from dataclasses import replace

from searchrl.contracts import Episode, Judge, Unscored
from searchrl.rewards import FunctionReward, ask_judge
from searchrl_control.searching.reformulators import as_shown

_SHOWN = 3
_MAX_CHARACTERS = 500
"""Passages that a judge reads, and how much of each."""


def make_list_judge(judge: Judge) -> FunctionReward:
    """The component `list_judge`: 0 to 1; 0 of an empty list."""

    def score(episode: Episode) -> float | Unscored:
        passages = episode.turns[-1].passages if episode.turns else ()
        shown = "\n\n".join(as_shown(one)[:_MAX_CHARACTERS] for one in passages[:_SHOWN])
        return ask_judge(judge, replace(episode, final_answer=shown), as_number=True)

    return FunctionReward("list_judge", score, (0.0, 1.0), is_range=True)
