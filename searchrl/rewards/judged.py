"""The component `judge`, and how components ask a judge about an episode.

An episode without a final answer scores 0, and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.contracts import Judge, find_verdict_problem
from searchrl.contracts.scoring import RankingJudge, Reward
from searchrl.core.episode import Episode, JudgeCase, Unscored, Verdict
from searchrl.errors import ScoringFailure
from searchrl.rewards.components import FunctionReward


def make_judged(judge: Judge) -> Reward:
    """The component `judge`: the judge's score of the final answer."""
    return FunctionReward("judge", lambda e: ask_judge(judge, e, as_number=True), (0.0, 1.0), True)


def ask_judge(judge: Judge, episode: Episode, *, as_number: bool = False) -> float | Unscored:
    """Return a judge's score of an episode's final answer: 0, 0.5 or 1; 0 without an answer.

    With `as_number`, its number from 0 to 1, if it was asked for one.

    Raises:
        ScoringFailure: if it returns anything else.
        Exception: any that the judge raises.
    """
    case = make_case(episode)
    return 0.0 if case is None else _read(judge.judge(case), as_number=as_number)


def ask_ranking(judge: Judge, episodes: Sequence[Episode]) -> list[float | Unscored]:
    """Return a judge's scores of the final answers of a group, 0 to 1; 0 without an answer.

    The judge sees each answer once, in an order that does not depend on that of the episodes. One
    that cannot rank judges them one by one.

    Raises:
        ScoringFailure: if an answer lacks a verdict.
        Exception: any that the judge raises.
    """
    if not isinstance(judge, RankingJudge):
        return [ask_judge(judge, episode) for episode in episodes]
    cases = [make_case(episode) for episode in episodes]
    shown = sorted({case for case in cases if case is not None}, key=lambda case: case.answer)
    verdicts = judge.rank(shown) if shown else []
    if len(verdicts) != len(shown):
        raise ScoringFailure(f"its judge ranked {len(verdicts)} of {len(shown)} answers")
    scores = {case: _read(one, is_ranked=True) for case, one in zip(shown, verdicts, strict=True)}
    return [0.0 if case is None else scores[case] for case in cases]


def make_case(episode: Episode) -> JudgeCase | None:
    """Return an episode's case for a judge; None if there is no final answer to judge."""
    if episode.final_answer is None or not episode.final_answer.strip():
        return None
    task = episode.task
    return JudgeCase(task.question, episode.final_answer, tuple(task.answers))


def _read(
    verdict: Verdict | Unscored, *, is_ranked: bool = False, as_number: bool = False
) -> float | Unscored:
    if problem := find_verdict_problem(verdict, is_ranked=is_ranked):
        raise ScoringFailure(f"its judge returned {problem}")
    if isinstance(verdict, Unscored):
        return verdict
    return float(verdict.score if verdict.number is None or not as_number else verdict.number)
