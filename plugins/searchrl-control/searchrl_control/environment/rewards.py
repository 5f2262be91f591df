"""The component `list_judge`: what a judge says of the list an episode ended with.

Owns what a judge reads: the first passages. Where relevant passages are known, their ids are in the
task; its accepted answers are passed on to judges that compare with some.
"""

from __future__ import annotations

from searchrl import ScoringFailure
from searchrl.contracts import (
    JUDGE_SCALE,
    Episode,
    Judge,
    JudgeCase,
    Score,
    Unscored,
    find_verdict_problem,
)
from searchrl_control.reformulate.contract import as_shown

_SHOWN = 3
_MAX_CHARACTERS = 500
"""Passages that a judge reads, and how much of each."""


class ListJudge:
    """The component `list_judge`: 0, 0.5 or 1; 0 of an empty list."""

    def __init__(self, judge: Judge) -> None:
        self.name = "list_judge"
        self.values: tuple[float, ...] = JUDGE_SCALE
        self.is_range = False
        self._judge = judge

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score the passages of the last turn.

        Raises `ScoringFailure`: the judge says something else.
        """
        passages = episode.turns[-1].passages if episode.turns else ()
        shown = "\n\n".join(as_shown(one)[:_MAX_CHARACTERS] for one in passages[:_SHOWN])
        if not shown:
            return 0.0
        task = episode.task
        said = self._judge.judge(JudgeCase(task.question, shown, task.answers))
        if problem := find_verdict_problem(said):
            raise ScoringFailure(f"the judge of a list returned {problem}")
        return said if isinstance(said, Unscored) else float(said.score)
