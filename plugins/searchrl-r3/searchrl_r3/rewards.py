"""Process rewards: one score per step, and one for all.

    relevance    share of the still missing gold passages that the step brought
    rationality  of the query, coherence of the analysis: a judge with a rubric
    r3           the table of R3-RAG (arXiv 2505.23794), p = relevance:
                 right: 1.6 p, last step 2; wrong: 0.8 p, last step 0; no answer: 0.9 p;
                 a step that was written wrong too often: -0.9

They read the episode alone. Only searches have a relevance. A step that a judge could not score
counts as the mean of the others; where it could score none, the episode is unscored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from searchrl import ConfigError, suggest_path
from searchrl.contracts import (
    ANSWER,
    INVALID,
    JUDGE_SCALE,
    SEARCH,
    Episode,
    Judge,
    JudgeCase,
    Score,
    Task,
    Unscored,
    find_verdict_problem,
)
from searchrl.rewards import FunctionReward, em
from searchrl_r3.protocol import Step, read_step

PlainScore = float | Score | Unscored
_ASSETS = Path(__file__).with_name("assets")

RIGHT, WRONG, NO_ANSWER, LAST, GIVEN_UP = 1.6, 0.8, 0.9, 2.0, -0.9


def make_relevance(judge: Judge) -> FunctionReward:
    """The mean over searches of the share of missing gold passages that each brought."""

    def score(episode: Episode) -> PlainScore:
        values = relevances(episode, judge)
        return values if isinstance(values, Unscored) else _mean(episode, values, SEARCH)

    return FunctionReward("relevance", score, (0.0, 1.0), is_range=True)


def make_r3(judge: Judge, normalization: str = "N1") -> FunctionReward:
    """The published table; the value is the sum over steps."""

    def score(episode: Episode) -> PlainScore:
        values = relevances(episode, judge)
        if isinstance(values, Unscored):
            return values
        steps = table(episode, values, normalization)
        return Score(math.fsum(steps), tuple(steps))

    def applies(task: Task) -> bool:
        return bool(task.answers)

    return FunctionReward("r3", score, (-0.9, math.inf), is_range=True, applies=applies)


def make_rationality(judge: Judge, *, rubric: str | None = None) -> FunctionReward:
    """The judge's score of each query, given the question and the steps before."""
    text = read_rubric(rubric, "rationality")
    return _judged("rationality", judge, text, SEARCH, lambda step: step.text)


def make_coherence(judge: Judge, *, rubric: str | None = None) -> FunctionReward:
    """The judge's score of each analysis, given the question and the steps before."""
    text = read_rubric(rubric, "coherence")
    return _judged("coherence", judge, text, "", lambda step: step.analysis)


def make_reasoning(judge: Judge, *, rubric: str | None = None) -> FunctionReward:
    """The share of analyses that a judge accepts: 1 by the rubric of `coherence`, nothing less."""
    text = read_rubric(rubric, "coherence")
    part, grade = (lambda step: step.analysis), (lambda score: float(score == 1))

    def name_figure(judge: str) -> str:
        # A judge that only compares words measures no accuracy.
        return f"{'accepted_analyses' if judge == 'lexical' else 'reasoning_accuracy'}[{judge}]"

    return replace(_judged("reasoning", judge, text, "", part, grade), figure=name_figure)


def make_step_format() -> FunctionReward:
    """The share of turns that are well-formed steps."""

    def score(episode: Episode) -> float:
        num_good = sum(turn.action.kind != INVALID for turn in episode.turns)
        return num_good / max(1, len(episode.turns))

    return FunctionReward("step_format", score, (0.0, 1.0), is_range=True)


def table(episode: Episode, relevance: Sequence[float], normalization: str = "N1") -> list[float]:
    """The score of every turn, from its relevance, as published."""
    turns = episode.turns
    if episode.final_answer is not None:
        is_right = em(episode.final_answer, episode.task.answers, normalization) == 1
        steps = [(RIGHT if is_right else WRONG) * one for one in relevance]
        last = LAST if is_right else 0.0
        return [last if t.action.kind == ANSWER else s for t, s in zip(turns, steps, strict=True)]
    steps = [NO_ANSWER * one for one in relevance]
    # The environment ended it without an answer: there were no more tries.
    if turns and turns[-1].action.kind == INVALID and episode.stop_reason == "answered":
        steps[-1] = GIVEN_UP
    return steps


def relevances(episode: Episode, judge: Judge) -> list[float] | Unscored:
    """The relevance of every turn: 0 for one that searched for nothing."""
    missing, values = set(episode.task.gold_ids), list[float | Unscored | None]()
    for place, turn in enumerate(episode.turns):
        if turn.action.kind != SEARCH:
            values.append(None)
        elif episode.task.gold_ids:
            shown = {passage.id for passage in turn.passages}
            values.append(len(missing & shown) / len(missing) if missing else 0.0)
            missing -= shown
        else:
            rubric = read_rubric(None, "relevance")
            values.append(_ask(judge, rubric, episode, place, turn.observation))
    return _filled(values)


@cache
def read_rubric(path: str | None, name: str) -> str:
    """The text of a rubric: the user's file, or the one of this package."""
    file = _ASSETS / f"{name}.txt" if path is None else Path(path.removeprefix("@")).expanduser()
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the rubric '{file}' of reward '{name}' cannot be read: {error}; expected a text file "
            f"(UTF-8) that says what is right, partly right and wrong.{suggest_path(file)}"
        ) from error
    if not text:
        raise ConfigError(f"the rubric '{file}' of reward '{name}' is empty; write what counts")
    return text


def _judged(
    name: str,
    judge: Judge,
    text: str,
    kind: str,
    part: Callable[[Step], str],
    grade: Callable[[float], float] = float,
) -> FunctionReward:
    """A judge's score of `part` of each turn of `kind` (empty: of each), by a rubric's text."""

    def score(episode: Episode) -> PlainScore:
        scores = list[float | Unscored | None]()
        for place, turn in enumerate(episode.turns):
            step = read_step(turn.text)
            one: float | Unscored | None = None
            if isinstance(step, Step) and turn.action.kind in (kind or (SEARCH, ANSWER)):
                one = _ask(judge, text, episode, place, part(step))
            scores.append(grade(one) if isinstance(one, float) else one)
        filled = _filled(scores)
        return filled if isinstance(filled, Unscored) else _mean(episode, filled, kind)

    return FunctionReward(name, score, JUDGE_SCALE[:1] + JUDGE_SCALE[-1:], is_range=True)


def _ask(judge: Judge, rubric: str, episode: Episode, place: int, text: str) -> float | Unscored:
    """A judge's score of a part of a step; it is shown the question and all before."""
    before = episode.turns[:place]
    shown = "".join(f"{one.text.strip()}\n{one.observation.strip()}\n" for one in before)
    question = f"{rubric}\n\nQuestion: {episode.task.question}\n\nSteps so far:\n{shown or 'none'}"
    verdict = judge.judge(JudgeCase(question, text, tuple(episode.task.answers)))
    if problem := find_verdict_problem(verdict):
        raise ValueError(f"its judge returned {problem}")
    return verdict if isinstance(verdict, Unscored) else float(verdict.score)


def _filled(scores: Sequence[float | Unscored | None]) -> list[float] | Unscored:
    """Scores with the mean of the others for Unscored, 0 for None; Unscored if all are."""
    judged = [one for one in scores if one is not None]
    known = [one for one in judged if not isinstance(one, Unscored)]
    if judged and not known:
        return next(one for one in judged if isinstance(one, Unscored))
    fill = math.fsum(known) / max(1, len(known))
    return [0.0 if one is None else fill if isinstance(one, Unscored) else one for one in scores]


def _mean(episode: Episode, scores: Sequence[float], kind: str) -> Score:
    """The mean over turns of `kind` (empty: all), with the score of each."""
    pairs = zip(episode.turns, scores, strict=True)
    counted = [score for turn, score in pairs if kind in ("", turn.action.kind)]
    return Score(math.fsum(counted) / max(1, len(counted)), tuple(scores))
