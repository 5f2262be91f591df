"""What an episode earns: nDCG@k at its end, its gain in every step, or what a judge says.

Owns the three rewards and the cost of a step. `ndcg` and `gain` have the same sum over an episode:
`gain` only pays it when it is earned. `judge` is the published one: a judge reads the first
passages. Where relevant passages are known, their texts are the accepted answers, for judges that
compare with some.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl import ConfigError, ScoringFailure, suggest
from searchrl.contracts import (
    JUDGE_SCALE,
    Episode,
    Judge,
    JudgeCase,
    Passage,
    Score,
    Unscored,
    find_verdict_problem,
)

NDCG, GAIN, JUDGED = "ndcg", "gain", "judge"
KINDS = (NDCG, GAIN, JUDGED)

_SHOWN = 3
_MAX_CHARACTERS = 500
"""Passages that a judge reads, and how much of each."""


def ensure_reward(kind: str, judge: Judge | None) -> str:
    """Return the kind of a reward; raise `ConfigError` if it is none, or has no judge."""
    if kind not in KINDS:
        raise ConfigError(f"env.reward: there is no {kind!r}.{suggest(kind, KINDS)}")
    if kind == JUDGED and judge is None:
        raise ConfigError(
            "env.reward=judge needs a judge. In a run of searchrl, leave env.reward alone and name "
            "the component: --reward list_judge --judge NAME; in Python, pass judge=…"
        )
    return kind


def judge_list(
    judge: Judge, question: str, passages: Sequence[Passage], references: Sequence[str] = ()
) -> float | Unscored:
    """What a judge says of the first passages of a list: 0, 0.5 or 1; 0 of an empty list.

    Raises:
        ScoringFailure: it says something else.
        Exception: whatever the judge raises.
    """
    shown = "\n\n".join(_show(passage) for passage in passages[:_SHOWN])
    if not shown:
        return 0.0
    said = judge.judge(JudgeCase(question, shown, tuple(references)))
    if problem := find_verdict_problem(said):
        raise ScoringFailure(f"the judge of a list returned {problem}")
    return said if isinstance(said, Unscored) else float(said.score)


class ListJudge:
    """The component `list_judge`: what the judge says of the list an episode ended with."""

    def __init__(self, judge: Judge) -> None:
        self.name = "list_judge"
        self.values: tuple[float, ...] = JUDGE_SCALE
        self.is_range = False
        self._judge = judge

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score the passages of the last turn."""
        passages = episode.turns[-1].passages if episode.turns else ()
        return judge_list(self._judge, episode.task.question, passages, episode.task.answers)


def make_list_judge(judge: Judge) -> ListJudge:
    """The component `list_judge`."""
    return ListJudge(judge)


def _show(passage: Passage) -> str:
    text = f"{passage.title}. {passage.text}" if passage.title else passage.text
    return text[:_MAX_CHARACTERS]
