"""Criteria of reward components: W1 to W11, over the table of reward cases, or groups of them.

A component that pays the gold and a wrong answer alike reads no answers, and is not asked about
them. For one of groups, the score of an answer is that beside a wrong one.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from searchrl.contracts.scoring import Reward
from searchrl.core.episode import Episode, Score
from searchrl.rewards.scorer import checked_score
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion
from searchrl.testing.kit.cases import RewardCase, reward_cases
from searchrl.testing.kit.fuzz import catch
from searchrl.testing.kit.subject import Subject
from searchrl.testing.trials import Trial, Way, judged, unchanged

_TOLERANCE = 1e-9

_NEVER_BETTER = (
    "wrong", "echo", "empty-answer", "blank-answer", "no-answer", "no-turns", "empty-turn",
    "prose", "unclosed-answer", "gold-in-thought", "gold-in-query", "broken-tags", "turn-limit",
    "turn-tokens", "message-ended", "forged-observation",
)  # fmt: skip
"""Cases that must not earn more than the gold answer."""
_REPEATED = ("repeated-in-turn", "repeated-in-turns", "guesses", "second-thoughts")
SIZE = 4
"""Episodes of a group that is tried."""

Case = Episode | tuple[Episode, ...]
"""The argument of a component: an episode, or those of a group."""


@criterion("W1")
def _declares(subject: Subject) -> Iterator[Problem]:
    component: Any = subject.make()
    at = type(component)
    if not callable(component):
        called_with = "a list of episodes" if subject.entry.is_of_group else "an episode"
        what = f"the factory makes a {at.__name__}, which cannot be called with {called_with}"
        yield Problem(what, at)
        return
    name: Any = getattr(component, "name", None)
    values: Any = getattr(component, "values", None)
    is_range = getattr(component, "is_range", None)
    if not isinstance(name, str) or not name:
        yield Problem(f"name = {name!r}; expected a text, {subject.entry.name!r}", at)
    if not isinstance(is_range, bool):
        yield Problem(f"is_range = {is_range!r}; expected True or False", at)
    is_tuple = isinstance(values, tuple) and len(values) > 0
    if not is_tuple or not all(isinstance(v, numbers.Real) and not math.isnan(v) for v in values):
        yield Problem(f"values = {values!r}; expected a tuple of numbers", at)
    elif is_range and (len(values) != 2 or not values[0] < values[1]):
        yield Problem(f"values = {values!r} with is_range; expected (low, high)", at)
    elif not is_range and not all(map(math.isfinite, values)):
        yield Problem(f"values = {values!r}; a single value must be finite", at)


@functools.cache
def _cases() -> dict[str, RewardCase]:
    return {case.name: case for case in reward_cases()}


def _find_cases(subject: Subject) -> Mapping[str, Case]:
    """The episodes of all cases, or groups of them, each under the words that name it."""
    if not subject.entry.is_of_group:
        return {f"case '{case.name}' ({case.why})": case.episode for case in _cases().values()}
    names = [*_cases()]
    listed = [[name] for name in names]
    listed += [[name] * SIZE for name in ("gold", "no-turns", "no-answer")]
    listed += [names[i : i + SIZE] for i in range(0, len(names), SIZE)]
    return {f"the group of the cases {', '.join(group)}": _group(*group) for group in listed}


def _group(*names: str) -> tuple[Episode, ...]:
    return tuple(_cases()[name].episode for name in names)


def _score(component: Any, case: Case) -> object:
    """A plain value to compare; of a group a list of them."""
    result = component(case)
    is_list = not isinstance(case, Episode) and isinstance(result, Iterable)
    return [*map(_plain, result)] if is_list else _plain(result)


def _plain(result: object) -> object:
    """A number, a tuple, or a text for what is no score."""
    if isinstance(result, Score):
        return (result.value, *(result.per_turn or ()))
    return float(result) if isinstance(result, numbers.Real) else f"a {type(result).__name__}"


SCORED = Trial(_find_cases, _score)

_never_raises = criterion("W2")(judged(SCORED, raises=True)(lambda case, score: ""))
_is_repeatable = criterion("W5")(unchanged(SCORED, Way.AGAIN, Way.LATER, Way.ANEW))
_is_pure = criterion("W6")(unchanged(SCORED, Way.ELSEWHEN))
_bears_threads = criterion("W11")(unchanged(SCORED, Way.TOGETHER))


@criterion("W3")
@judged(Trial(_find_cases, lambda made, case: (made, made(case))), most=MAX_PROBLEMS)
def _within_values(case: Case, scored: tuple[Reward, Any]) -> str:
    component, returned = scored
    if isinstance(case, Episode):
        case, returned = (case,), [returned]
    if isinstance(returned, str | Mapping) or not isinstance(returned, Iterable):
        return f"it returned {returned!r:.80} ({type(returned).__name__}); expected a list"
    results = list(returned)
    if len(results) != len(case):
        return f"it returned {len(results)} scores for {len(case)} episodes"
    for result, episode in zip(results, case, strict=True):
        if error := catch(checked_score, component, result, len(episode.turns)):
            return f"it {error}"  # what a run would say
    return ""


@criterion("W8")
def _pays_gold(subject: Subject) -> Iterator[Problem]:
    yield from _find_better(subject, _NEVER_BETTER, "the gold answer")
    scores = _answer_scores(subject)
    gold = scores["gold"]
    # No final answer may be a way to abstain; an answer that says nothing is a wrong one.
    empty = scores.get("punctuation-answer", -math.inf)
    if empty >= gold - _TOLERANCE:
        what = f"the answer '.' earns {empty:g}, as much as the gold answer ({gold:g})"
        fix = "an answer of which normalisation leaves nothing is wrong ('' is in every text)"
        yield Problem(what, _place(subject, "punctuation-answer"), fix)


@criterion("W9")
def _ignores_passages(subject: Subject) -> Iterator[Problem]:
    scores = _answer_scores(subject)
    for end in ("", "-wrong"):
        told, neutral = scores.get(f"tag-in-passage{end}"), scores.get(f"neutral-passage{end}")
        if told is not None and neutral is not None and abs(told - neutral) > _TOLERANCE:
            change = f"changes the score from {neutral:g} to {told:g}"
            at = _place(subject, f"tag-in-passage{end}")
            yield Problem(f"an answer block inside a retrieved passage {change}", at)


@criterion("W10")
def _pays_once(subject: Subject) -> Iterator[Problem]:
    yield from _find_better(subject, _REPEATED, "a single gold answer")


def _alone(subject: Subject, name: str) -> Case:
    """The argument of a component by which its score of one case is known."""
    return _group(name, "wrong") if subject.entry.is_of_group else _cases()[name].episode


def _place(subject: Subject, name: str) -> object:
    return SCORED.find_place(subject, _alone(subject, name))


def _answer_scores(subject: Subject) -> dict[str, float]:
    """The scores of the cases that have one, if the component reads answers at all."""
    component, scores = subject.make(), dict[str, float]()
    for name in _cases():
        with contextlib.suppress(Exception, SystemExit):  # W2 says so
            result = component(copy.deepcopy(_alone(subject, name)))
            result = result[0] if subject.entry.is_of_group else result
            value = result.value if isinstance(result, Score) else result
            if isinstance(value, numbers.Real):
                scores[name] = float(value)
    if "gold" not in scores or "wrong" not in scores:
        raise NotApplicable("it could not score the gold and the wrong answer of the cases")
    if abs(scores["gold"] - scores["wrong"]) <= _TOLERANCE:
        raise NotApplicable("it pays a gold and a wrong answer alike: it reads no answers")
    return scores


def _find_better(subject: Subject, names: Sequence[str], who: str) -> Iterator[Problem]:
    """A problem for every case that earns more than the gold answer."""
    scores = _answer_scores(subject)
    gold = scores["gold"]
    for name in names:
        if scores.get(name, -math.inf) > gold + _TOLERANCE:
            what = f"case '{name}' earns {scores[name]:g}, {who} {gold:g}"
            yield Problem(what, _place(subject, name))
