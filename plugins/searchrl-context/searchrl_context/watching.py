"""Scores and an alarm of summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from searchrl.contracts import Alert, Episode, History, Unscored
from searchrl.rewards import FunctionReward

_FAULTS = {
    "summary_exhausted": "it wrote more summaries than it may",
    "summary_empty": "it wrote an empty summary, or none where one was asked for",
}


def make_intact() -> FunctionReward:
    """Return 1 for an episode whose summaries are in order; else it is unscored, and says why."""

    def score(episode: Episode) -> float | Unscored:
        for name, reason in _FAULTS.items():
            if episode.signals.get(name):
                return Unscored(reason)
        last = episode.turns[-1].text if episode.turns else ""
        if last.count("<summary>") > last.count("</summary>"):
            return Unscored("its last summary has no end")
        return 1.0

    return FunctionReward("intact", score, (0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class SummaryCollapse:
    """Sounds when summaries shrink to nothing, or are copies of the one before.

    It reads the metrics `signal:summaries`, `signal:summary_words` and `signal:summary_copied`.

    Args:
        min_share: share of the words of a summary at the start that must be left.
        max_copied: share of summaries that may be copies.
        steps: how many steps in a row.
    """

    min_share: Annotated[float, Field(ge=0, le=1)] = 0.25
    max_copied: Annotated[float, Field(ge=0, le=1)] = 0.5
    steps: Annotated[int, Field(ge=1)] = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the first ones."""
        counts = {point.step: point.value for point in history.curve("signal:summaries")}
        for name in ("summary_words", "summary_copied"):
            curve = history.curve(f"signal:{name}")
            each = [(p.step, p.value / counts[p.step]) for p in curve if counts.get(p.step)]
            if len(each) < 2 * self.steps:
                continue
            first = sum(value for _, value in each[: self.steps]) / self.steps
            last = each[-self.steps :]
            if name == "summary_words" and all(v < self.min_share * first for _, v in last):
                what = f"summaries fell from {first:.1f} words to {last[-1][1]:.1f}"
            elif name == "summary_copied" and all(v > self.max_copied for _, v in last):
                what = f"{last[-1][1]:.0%} of the summaries are those before them, copied"
            else:
                continue
            return Alert(
                what,
                last[0][0],
                "what was read before them is lost for the rest of the episode",
                ("go back to an earlier checkpoint with half of optim.lr", "algorithm.beta=0.01"),
                "critical",
            )
        return None
