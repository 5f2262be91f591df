"""Criteria of reward components: W1 to W12, over the table of reward cases, or groups of them.

Owns what a component must do beyond its types: keep to the declared values, depend on the episode
alone, and pay neither silence, nor a retrieved text, nor repetition. A component that pays the gold
and a wrong answer alike reads no answers, and is not asked about them. One of groups gets groups of
one episode, of equal ones and of different ones; its score of an answer is that beside a wrong one.
"""

from __future__ import annotations

import copy
import functools
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from searchrl.contracts import GroupReward, Reward
from searchrl.core.episode import Episode, Score, Unscored
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion, is_real
from searchrl.testing.kinds.trials import (
    Trial,
    Way,
    called_by_threads,
    judged,
    raises_nothing,
    unchanged,
    unmutated,
)
from searchrl.testing.kit.cases import RewardCase, reward_cases
from searchrl.testing.kit.subject import Subject

_TOLERANCE = 1e-9

_NEVER_BETTER = (
    "wrong", "echo", "empty-answer", "blank-answer", "no-answer", "no-turns", "empty-turn",
    "prose", "unclosed-answer", "gold-in-thought", "gold-in-query", "broken-tags", "turn-limit",
    "turn-tokens", "message-ended", "forged-observation",
)  # fmt: skip
"""Cases that must not earn more than the gold answer."""


SIZE = 4
"""Episodes of a group that is tried."""

Case = Episode | tuple[Episode, ...]
"""What a component is called with: an episode, or those of a group."""


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


@criterion("W4")
def _per_turn(subject: Subject) -> Iterator[Problem]:
    scored = [
        (case, result.per_turn)
        for case, result in _results(subject)
        if isinstance(result, Score) and result.per_turn is not None
    ]
    if not scored:
        raise NotApplicable("it gives no process scores")
    for case, per_turn in scored:
        num_turns = len(case.episode.turns)
        bad = [turn for turn in per_turn if not is_real(turn)]
        if len(per_turn) != num_turns:
            what = f"{_describe(case)}: {len(per_turn)} process scores for {num_turns} turns"
            yield Problem(what, _place(subject, case.name))
        elif bad:
            what = f"{_describe(case)}: the process score {bad[0]!r} is no finite number"
            yield Problem(what, _place(subject, case.name))


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
    names = ("repeated-in-turn", "repeated-in-turns", "guesses", "second-thoughts")
    yield from _find_better(subject, names, "a single gold answer")


@functools.cache
def _cases() -> dict[str, RewardCase]:
    return {case.name: case for case in reward_cases()}


def _find_cases(subject: Subject) -> Mapping[str, Case]:
    """The episodes of all cases, or groups of them, each under the words that name it."""
    if not subject.entry.is_of_group:
        return {_describe(case): case.episode for case in _cases().values()}
    # Failed episodes are left out of a group.
    names = [name for name, case in _cases().items() if case.episode.failure is None]
    listed = [[name] for name in names]
    listed += [[name] * SIZE for name in ("gold", "no-turns", "no-answer")]
    listed += [names[i : i + SIZE] for i in range(0, len(names), SIZE)]
    return {f"the group of the cases {', '.join(group)}": _group(*group) for group in listed}


def _group(*names: str) -> tuple[Episode, ...]:
    return tuple(_cases()[name].episode for name in names)


def _describe(case: RewardCase) -> str:
    return f"case '{case.name}' ({case.why})"


def _score(component: Any, case: Case) -> object:
    """A plain value to compare; of a group a list of them."""
    result = component(case)
    if isinstance(case, Episode) or not _is_list(result):
        return _plain_score(result)
    return [_plain_score(one) for one in result]


def _is_list(result: object) -> bool:
    return not isinstance(result, str | Mapping) and hasattr(result, "__iter__")


def _plain_score(result: object) -> object:
    """A number, a tuple, or a text for what is no score."""
    if isinstance(result, Unscored):
        return "Unscored"
    if isinstance(result, Score):
        return (result.value, *(result.per_turn or ()))
    return float(result) if isinstance(result, numbers.Real) else f"a {type(result).__name__}"


SCORED = Trial(_find_cases, _score)
JUDGED = Trial(_find_cases, lambda component, case: (component, component(case)))

_never_raises = criterion("W2")(raises_nothing(SCORED))
_is_repeatable = criterion("W5")(unchanged(SCORED, Way.AGAIN, Way.LATER, Way.ANEW))
_is_pure = criterion("W6")(unchanged(SCORED, Way.ELSEWHEN))
_does_not_mutate = criterion("W7")(unmutated(SCORED))
_bears_threads = criterion("W11")(called_by_threads(SCORED))


@criterion("W3")
@judged(JUDGED, most=MAX_PROBLEMS)
def _within_values(case: Case, scored: tuple[Reward, Any]) -> str:
    component, returned = scored
    if isinstance(case, Episode):
        return _find_score_problem(component, returned)
    if not _is_list(returned):
        return f"it returned {returned!r:.80} ({type(returned).__name__}); expected a list"
    results = list(returned)
    if len(results) != len(case):
        return f"it returned {len(results)} scores for {len(case)} episodes"
    return next((said for one in results if (said := _find_score_problem(component, one))), "")


@criterion("W12")
def _keeps_with_the_episode(subject: Subject) -> Iterator[Problem]:
    if not subject.entry.is_of_group:
        raise NotApplicable("it scores one episode at a time: it is not registered with group=True")
    component = subject.make()
    for name, group in _find_cases(subject).items():
        assert isinstance(group, tuple)
        try:
            forward, backward = (_score(component, copy.deepcopy(g)) for g in (group, group[::-1]))
        except (Exception, SystemExit):
            continue  # W2 says why
        if not isinstance(forward, list) or not isinstance(backward, list):
            continue  # W3 says why
        if not _are_close(forward, backward[::-1]):
            what = f"{name} is scored {forward}; in reverse order, {backward[::-1]}"
            yield Problem(what, SCORED.find_place(subject, group))
            return


def _are_close(left: Sequence[Any], right: Sequence[Any]) -> bool:
    pairs = list(zip(left, right, strict=False))
    return all(
        abs(a - b) <= _TOLERANCE if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in pairs
    )


def _find_score_problem(component: Reward | GroupReward, result: object) -> str:
    """What came back in place of a score, or "" if it is one that was declared."""
    if isinstance(result, Unscored):
        is_told = isinstance(result.reason, str) and result.reason
        return "" if is_told else "it returned Unscored without a reason"
    value: Any = result.value if isinstance(result, Score) else result
    if not is_real(value):
        return f"it returned {value!r} ({type(value).__name__})"
    values: Any = getattr(component, "values", None)
    try:
        if getattr(component, "is_range", False):
            low, high = values
            is_declared = low - _TOLERANCE <= value <= high + _TOLERANCE
        else:
            is_declared = any(abs(float(value) - one) <= _TOLERANCE for one in values)
    except (TypeError, ValueError) as error:
        raise NotApplicable("it declares no values to compare with") from error
    said = f"it returned {float(value):g}, which is not in its values {values!r}"
    return "" if is_declared else said


def _alone(subject: Subject, name: str) -> Case:
    """What a component is called with to learn its score of one case."""
    return _group(name, "wrong") if subject.entry.is_of_group else _cases()[name].episode


def _place(subject: Subject, name: str) -> object:
    return SCORED.find_place(subject, _alone(subject, name))


def _results(subject: Subject) -> Iterator[tuple[RewardCase, object]]:
    """Each case with what the component returns; those at which it raises are W2's."""
    component: Callable[[Any], Any] = subject.make()
    for name, case in _cases().items():
        try:
            result = component(copy.deepcopy(_alone(subject, name)))
            yield case, result[0] if subject.entry.is_of_group else result
        except (Exception, SystemExit):
            continue


def _answer_scores(subject: Subject) -> dict[str, float]:
    """The scores of the cases that have one, if the component reads answers at all."""
    scores = {
        case.name: float(raw)
        for case, result in _results(subject)
        if isinstance(raw := result.value if isinstance(result, Score) else result, numbers.Real)
    }
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
