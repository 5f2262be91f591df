"""Criteria of reward components: W1 to W11, over the table of reward cases.

Owns what a component is held to beyond its types: the declared values, purity, and that neither
silence, nor a retrieved text, nor repetition is paid. A component that pays the gold and a wrong
answer alike reads no answers, and is not asked about them. `searchrl check` runs them.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchrl.contracts import Reward
from searchrl.core.episode import Episode, Score, Unscored
from searchrl.plugins.deadline import call_with_deadline
from searchrl.plugins.registry import Registry, describe_error
from searchrl.testing.criteria import TIMEOUT_S, Criterion, NotApplicable, Problem, criterion
from searchrl.testing.kit.cases import RewardCase, reward_cases
from searchrl.testing.probes.effects import Effect, watch_effects
from searchrl.testing.probes.elsewhere import call_elsewhere
from searchrl.testing.probes.subject import PluginSubject
from searchrl.testing.probes.surroundings import other_surroundings

_TOLERANCE = 1e-9

_Result = float | Score | Unscored


@dataclass(frozen=True, slots=True)
class RewardSubject(PluginSubject):
    """A registered reward component and the cases it is scored on."""

    cases: tuple[RewardCase, ...] = field(default_factory=reward_cases)

    def make(self) -> Reward:
        """A fresh component."""
        made: Reward = self.build()
        return made

    def episode(self, name: str) -> Episode:
        """The episode of a case."""
        return next(case.episode for case in self.cases if case.name == name)

    def place(self, component: Reward, episode: Episode) -> object:
        """Where the plugin's file returns the score of an episode; else its registration."""
        return self.returned_at(lambda: component(copy.deepcopy(episode)))


@criterion(
    "W1",
    "is made without arguments and declares its values",
    "Scores outside the declared values end a rollout; plots and plans read the declaration.",
)
def _declares(subject: RewardSubject) -> Iterator[Problem]:
    component: Any = subject.make()
    at = type(component)
    if not callable(component):
        yield Problem(
            f"the factory makes a {at.__name__}, which cannot be called with an episode",
            "give its class a method __call__(self, episode)", at,
        )  # fmt: skip
        return
    name, values = getattr(component, "name", None), getattr(component, "values", None)
    is_range = getattr(component, "is_range", None)
    if not isinstance(name, str) or not name:
        yield Problem(f"name = {name!r}; expected a text", f"set name = {subject.entry.name!r}", at)
    if not isinstance(is_range, bool):
        yield Problem(
            f"is_range = {is_range!r}; expected True or False",
            "set is_range = False, or True if values are a (low, high)", at,
        )  # fmt: skip
    if (
        not isinstance(values, tuple)
        or not values
        or not all(isinstance(v, numbers.Real) and not math.isnan(v) for v in values)
    ):
        yield Problem(
            f"values = {values!r}; expected a tuple of numbers",
            "declare every value it may return, as in values = (0.0, 0.5, 1.0)", at,
        )  # fmt: skip
    elif is_range and (len(values) != 2 or not values[0] < values[1]):
        yield Problem(
            f"values = {values!r} with is_range; expected (low, high)",
            "declare the least and the greatest score; math.inf where there is no bound", at,
        )  # fmt: skip
    elif not is_range and not all(map(math.isfinite, values)):
        yield Problem(
            f"values = {values!r}; a single value must be finite",
            "set is_range = True if the values are bounds", at,
        )  # fmt: skip


@criterion(
    "W2",
    "never raises on an episode",
    "A rollout whose component raises is lost; a run with many such rollouts stops.",
)
def _never_raises(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    for case in subject.cases:
        try:
            component(copy.deepcopy(case.episode))
        except (Exception, SystemExit) as error:
            yield Problem(
                f"case '{case.name}' ({case.why}): it raised {describe_error(error)}",
                "return the score of such an episode, or Unscored(reason) if it has none",
                error,
            )


@criterion(
    "W3",
    "returns a score among its declared values",
    "A score of another kind or outside the declaration ends the rollout as a failure.",
)
def _within_values(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    for case, result in _results(component, subject.cases):
        problem = _find_score_problem(component, result)
        if problem:
            yield Problem(
                f"case '{case.name}' ({case.why}): it returned {problem}",
                "return a declared number, a Score or Unscored(reason); or declare what is missing",
                subject.place(component, case.episode),
            )


@criterion(
    "W4",
    "gives one process score per turn, or none",
    "Process scores of another number cannot be laid on turns; the rollout is lost.",
)
def _per_turn(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    has_any = False
    for case, result in _results(component, subject.cases):
        if not isinstance(result, Score) or result.per_turn is None:
            continue
        has_any = True
        num_turns = len(case.episode.turns)
        at = subject.place(component, case.episode)
        if len(result.per_turn) != num_turns:
            yield Problem(
                f"case '{case.name}' ({case.why}): {len(result.per_turn)} process scores for "
                f"{num_turns} turns", "give exactly one number per turn of episode.turns", at,
            )  # fmt: skip
        elif bad := [turn for turn in result.per_turn if not _is_finite(turn)]:
            yield Problem(
                f"case '{case.name}': the process score {bad[0]!r} is no finite number",
                "give a finite number for every turn", at,
            )  # fmt: skip
    if not has_any:
        raise NotApplicable("it gives no process scores")


@criterion(
    "W5",
    "scores the same episode the same, in whatever order",
    "Scores that depend on earlier episodes cannot be recomputed, and differ between workers.",
)
def _is_repeatable(subject: RewardSubject) -> Iterator[Problem]:
    expected = _scores(_made(subject), subject.cases)
    again = subject.make()
    backwards = _scores(again, subject.cases[::-1])
    for what, found in (
        ("scored again by the same component", _scores(again, subject.cases)),
        ("scored after other episodes", backwards),
        ("scored by another component of the kind", _scores(subject.make(), subject.cases)),
    ):
        yield from _differences(
            subject, expected, found, what,
            "compute the score from the episode alone: keep no counters and draw nothing",
        )  # fmt: skip


@criterion(
    "W6",
    "depends on nothing but the episode",
    "A score that depends on the clock, a seed, the folder or the machine is not reproducible.",
)
def _is_pure(subject: RewardSubject) -> Iterator[Problem]:
    _made(subject)

    def score() -> tuple[dict[str, object], list[Effect]]:
        with watch_effects() as effects:
            return _scores(subject.make(), subject.cases), effects

    limit_s = TIMEOUT_S / 3
    with other_surroundings(seed=1, clock=1.0e9, language="C"):
        first, _ = call_with_deadline(score, timeout_s=limit_s, owner="the component")
    with other_surroundings(seed=2, clock=2.0e9, language="de_DE.UTF-8"):
        second, effects = call_with_deadline(score, timeout_s=limit_s, owner="the component")
    mend = "use nothing but the episode; a component that must draw seeds its own random.Random"
    yield from _differences(
        subject, first, second, "with another seed, time, folder and language", mend
    )
    for effect in effects:
        yield Problem(
            f"it {effect}",
            "write nothing and ask nobody: a score is a function of the episode",
            effect.place,
        )


@criterion(
    "W7",
    "leaves the episode as it is",
    "The same episode goes to the other components, into the records and into training.",
)
def _does_not_mutate(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    for case in subject.cases:
        episode = copy.deepcopy(case.episode)
        try:
            component(episode)
        except (Exception, SystemExit):
            continue  # W2 says so
        if episode != case.episode:
            yield Problem(
                f"case '{case.name}' is another episode after it was scored",
                "copy what is changed: dict(episode.signals), list(episode.turns)",
                subject.place(component, case.episode),
            )


@criterion(
    "W8",
    "pays the gold answer best",
    "What is paid is learned: a reward that silence or punctuation wins teaches just that.",
)
def _pays_gold(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    scores = _answer_scores(component, subject.cases)
    gold = scores["gold"]
    mend = "compare whole answers after normalisation, and give 0 where there is no final answer"
    never_better = (
        "wrong", "echo", "empty-answer", "blank-answer", "no-answer", "no-turns", "empty-turn",
        "prose", "unclosed-answer", "gold-in-thought", "gold-in-query", "broken-tags",
        "turn-limit", "turn-tokens", "message-ended", "forged-observation",
    )  # fmt: skip
    for name in never_better:
        if scores.get(name, -math.inf) > gold + _TOLERANCE:
            yield Problem(
                f"case '{name}' earns {scores[name]:g}, the gold answer {gold:g}",
                mend, subject.place(component, subject.episode(name)),
            )  # fmt: skip
    # No final answer may be a way to abstain; an answer that says nothing is a wrong one.
    empty = scores.get("punctuation-answer", -math.inf)
    if empty >= gold - _TOLERANCE:
        yield Problem(
            f"the answer '.' earns {empty:g}, as much as the gold answer ({gold:g})",
            "treat an answer as wrong of which normalisation leaves nothing ('' is in every text)",
            subject.place(component, subject.episode("punctuation-answer")),
        )


@criterion(
    "W9",
    "is not fooled by a retrieved text",
    "A corpus, or an attacker who writes into it, would set the reward.",
)
def _ignores_passages(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    scores = _answer_scores(component, subject.cases)
    for end in ("", "-wrong"):
        told, neutral = scores.get(f"tag-in-passage{end}"), scores.get(f"neutral-passage{end}")
        if told is not None and neutral is not None and abs(told - neutral) > _TOLERANCE:
            yield Problem(
                f"an answer block inside a retrieved passage changes the score from {neutral:g} "
                f"to {told:g}",
                "read episode.final_answer; never search turns and observations for tags",
                subject.place(component, subject.episode(f"tag-in-passage{end}")),
            )


@criterion(
    "W10",
    "pays no more for repeated answers",
    "A model that is paid for each answer block writes a hundred.",
)
def _pays_once(subject: RewardSubject) -> Iterator[Problem]:
    component = _made(subject)
    scores = _answer_scores(component, subject.cases)
    for name in ("repeated-in-turn", "repeated-in-turns", "guesses", "second-thoughts"):
        if scores.get(name, -math.inf) > scores["gold"] + _TOLERANCE:
            yield Problem(
                f"case '{name}' earns {scores[name]:g}, a single gold answer {scores['gold']:g}",
                "read episode.final_answer, which is None where there are several answer blocks",
                subject.place(component, subject.episode(name)),
            )


@criterion(
    "W11",
    "scores the same in another process",
    "Rollout workers build the component anew; their scores must be those of the main process.",
)
def _same_elsewhere(subject: RewardSubject) -> Iterator[Problem]:
    expected = _scores(_made(subject), subject.cases)
    found = call_elsewhere(
        subject.registry,
        score_cases,
        subject.entry.qualified,
        dict(subject.settings),
        subject.cases,
    )
    yield from _differences(
        subject, expected, found, "in another process",
        "do not depend on the order of a set, on id() or hash(), or on what this process did",
    )  # fmt: skip


REWARD_CRITERIA: tuple[Criterion[RewardSubject], ...] = (
    _declares, _never_raises, _within_values, _per_turn, _is_repeatable, _is_pure,
    _does_not_mutate, _pays_gold, _ignores_passages, _pays_once, _same_elsewhere,
)  # fmt: skip
"""W1 to W11."""


def score_cases(
    registry: Registry, name: str, settings: Mapping[str, Any], cases: Sequence[RewardCase]
) -> dict[str, object]:
    """What a fresh component says of each case: its result, or what it raised as text."""
    return _scores(registry.get("reward", name).make(**settings), cases)


def _made(subject: RewardSubject) -> Reward:
    """A fresh component, if it can be made and called at all; W1 says why not."""
    try:
        component = subject.make()
    except (Exception, SystemExit) as error:
        raise NotApplicable("the component cannot be made; see W1") from error
    if not callable(component):
        raise NotApplicable("the component cannot be called; see W1")
    return component


def _results(component: Reward, cases: Sequence[RewardCase]) -> Iterator[tuple[RewardCase, object]]:
    """Each case with what the component returns; those at which it raises are W2's."""
    for case in cases:
        try:
            result = component(copy.deepcopy(case.episode))
        except (Exception, SystemExit):
            continue
        yield case, result


def _scores(component: Reward, cases: Sequence[RewardCase]) -> dict[str, object]:
    """Case -> a plain value to compare: a number, a tuple, or a text for what is no score."""
    found: dict[str, object] = {}
    for case in cases:
        try:
            found[case.name] = _plain(component(copy.deepcopy(case.episode)))
        except (Exception, SystemExit) as error:
            found[case.name] = f"raised {type(error).__name__}"
    return found


def _plain(result: object) -> object:
    if isinstance(result, Unscored):
        return "Unscored"
    if isinstance(result, Score):
        return (result.value, *(result.per_turn or ()))
    return float(result) if isinstance(result, numbers.Real) else f"a {type(result).__name__}"


def _answer_scores(component: Reward, cases: Sequence[RewardCase]) -> dict[str, float]:
    """The scores of the cases that have one, if the component reads answers at all."""
    scores = {
        case.name: float(raw)
        for case, result in _results(component, cases)
        if isinstance(raw := result.value if isinstance(result, Score) else result, numbers.Real)
    }
    if "gold" not in scores or "wrong" not in scores:
        raise NotApplicable("it could not score the gold and the wrong answer of the cases")
    if abs(scores["gold"] - scores["wrong"]) <= _TOLERANCE:
        raise NotApplicable("it pays a gold and a wrong answer alike: it reads no answers")
    return scores


def _differences(
    subject: RewardSubject,
    expected: Mapping[str, object],
    found: Mapping[str, object],
    what: str,
    mend: str,
) -> Iterator[Problem]:
    """One problem, for the first case whose score differs."""
    for name, before in expected.items():
        if before != found[name]:
            yield Problem(
                f"case '{name}' is {found[name]} {what}, and {before} otherwise",
                mend,
                subject.place(subject.make(), subject.episode(name)),
            )
            return


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _find_score_problem(component: Reward, result: object) -> str:
    """Say what came back in place of a score, or "" if it is one that was declared."""
    if isinstance(result, Unscored):
        return "" if isinstance(result.reason, str) and result.reason else "Unscored, no reason"
    value = result.value if isinstance(result, Score) else result
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        return f"{value!r} ({type(value).__name__})"
    values: Any = getattr(component, "values", None)
    try:
        if getattr(component, "is_range", False):
            low, high = values
            is_declared = low - _TOLERANCE <= value <= high + _TOLERANCE
        else:
            is_declared = any(abs(float(value) - one) <= _TOLERANCE for one in values)
    except (TypeError, ValueError) as error:
        raise NotApplicable("it declares no values to compare with; see W1") from error
    return "" if is_declared else f"{float(value):g}, which is not in its values {values!r}"
