"""Scoring an episode: runs the components, checks what they return, combines them.

If a component raises, hangs or returns a value that it did not declare, the rollout is unscored
with an attributed `Failure`, never 0. A component of groups sees all episodes of a group.
"""

from __future__ import annotations

import functools
import math
import numbers
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from opentelemetry.trace import NoOpTracer

from searchrl.contracts.problems import MAX_REWARD
from searchrl.contracts.scoring import GroupReward, Reward
from searchrl.core.episode import Episode, Failure, FailureKind, Score, Task, Unscored
from searchrl.errors import (
    BudgetSpent,
    EndpointFailure,
    PluginError,
    ScoringFailure,
    UnknownNameError,
    suggest,
)
from searchrl.rewards.components import SIGNAL
from searchrl.rewards.expression import RewardSchedule
from searchrl.tool_calls import CallLock, DeadlineExceeded, Raised, call_together
from searchrl.tracing import TRACER
from searchrl.trust.secrets import redact

_TOLERANCE = 1e-9
"""Rounding allowed at a declared value or bound: 0.1 + 0.2 is the declared 0.3."""

_Result = Score | Unscored


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """Scores of one episode.

    `reward` is None exactly when `unscored` says why. `scores` holds every component that scored,
    metrics included; for any other one `missing` holds the reason. `per_turn` holds process
    scores, one per turn of the episode. `failure` is set if something failed, and not if a
    component returned `Unscored`.
    """

    reward: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    per_turn: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unscored: str | None = None
    failure: Failure | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


class Scorer:
    """Scores episodes with the expression of `schedule` at the episode's step.

    Args:
        components: by the names that the expressions use.
        group_names: those that score groups (`contracts.GroupReward`).
        schedule: the expression of each step.
        metrics: names of further components to run, with weight 0.
        timeout_s: time limit of one call of a component; None: no limit.
        owners: the plugin of each component, for the text of failures.
        alone: names of components that take one call at a time.
        judge: the judge's name, for the names of metrics.

    Raises:
        UnknownNameError: a name has no component.
        PluginError: a component declares no values.
    """

    def __init__(
        self,
        components: Mapping[str, Reward | GroupReward],
        schedule: RewardSchedule,
        *,
        group_names: Collection[str] = (),
        metrics: Sequence[str] = (),
        timeout_s: float | None = 30.0,
        owners: Mapping[str, str] = MappingProxyType({}),
        alone: Collection[str] = (),
        judge: str = "",
    ) -> None:
        self.schedule = schedule
        self.names = tuple(dict.fromkeys((*schedule.names, *metrics)))
        for name in self.names:
            if name not in components:
                raise UnknownNameError(
                    f"unknown reward component '{name}'.{suggest(name, components)}"
                )
        self.components = tuple(name for name in self.names if not name.startswith(SIGNAL))
        """Registered names: all but the signals of the environment."""
        self.group_names = frozenset(group_names)
        self.owners = {
            name: f"reward '{name}'" + (f" of {owners[name]}" if name in owners else "")
            for name in components
        }
        """Name of each component in failures."""
        self.component_of = {name: components[name] for name in self.names}
        self.ranges: Mapping[str, tuple[float, float]] = {
            name: _declared_range(component, self.owners[name])
            for name, component in self.component_of.items()
        }
        """Least and greatest value that each component declares."""
        checks = {name: getattr(one, "applies", None) for name, one in self.component_of.items()}
        self.selective: Mapping[str, Callable[[Task], bool]] = {
            name: check for name, check in checks.items() if check is not None
        }
        """Checks of the components that score some tasks only."""
        named = {name: getattr(one, "figure", None) for name, one in self.component_of.items()}
        self.figures = {name: make(judge) if make else name for name, make in named.items()}
        """Name of the metric of each component."""
        self.timeout_s = timeout_s
        self.alone = frozenset(self.owners[name] for name in alone)
        """Owners that take one call at a time."""

    @property
    def headline(self) -> str:
        """Name of the figure that a run is judged by."""
        return self.schedule.headline

    def score(self, episode: Episode) -> ScoredEpisode:
        """Score one finished episode, a group by itself. Never raises for what a component does."""
        (scored,) = score_together([(self, episode)])
        return scored

    def applies(self, name: str, task: Task | None) -> bool:
        """Return True if a component scores a task; raises what a plugin's check raises.

        Where it does not, its term is left out of the reward and its metric is absent. It may score
        an unknown task (None).
        """
        if task is None or name not in self.selective:
            return True
        return bool(self.selective[name](task))


def score_together(
    work: Sequence[tuple[Scorer, Episode] | tuple[Scorer, Episode, str]],
    groups: Sequence[Hashable] = (),
) -> list[ScoredEpisode]:
    """Score many finished episodes, each with its scorer; results in order.

    Each component runs over all episodes before the next one. Calls of a component that wait
    overlap, unless it takes one at a time; quick calls run one after another.

    Args:
        work: every episode with its scorer, and the name of its row for the spans of its scores,
            if it has one; scorers of one run have one time limit.
        groups: the group of each; the episodes of one have one scorer. Empty: each is alone.
    """
    locks = {owner: CallLock() for one in work for owner in one[0].alone}
    sheets = [_EpisodeScores(*one) for one in work]
    group_of = groups or range(len(work))
    for place in range(max((len(scorer.names) for scorer, *_ in work), default=0)):
        # The members of a group ask for the same component at the same place.
        together: dict[Hashable, list[_EpisodeScores]] = {}
        for number, sheet in enumerate(sheets):
            if (name := sheet.next_name(place)) is not None:
                is_of_group = name in sheet.scorer.group_names
                key = ("group", group_of[number]) if is_of_group else ("episode", number)
                together.setdefault(key, []).append(sheet)
        calls = [
            (functools.partial(_run, members, place, locks), members[0].owner(place))
            for members in together.values()
        ]
        outcomes = call_together(calls, timeout_s=work[0][0].timeout_s)
        for members, outcome in zip(together.values(), outcomes, strict=True):
            # A call that failed as a whole failed for all of its episodes.
            if isinstance(outcome, Raised):
                results: Sequence[_Result | BaseException] = [outcome.error] * len(members)
            else:
                results = outcome.value
            for sheet, result in zip(members, results, strict=True):
                sheet.take(place, result)
    return [sheet.combine() for sheet in sheets]


class _EpisodeScores:
    """Scores of an episode so far; after a failure no component is asked."""

    def __init__(self, scorer: Scorer, episode: Episode, row: str = "") -> None:
        self.scorer, self.episode, self.row = scorer, episode, row
        self.scores: dict[str, float] = {}
        self.per_turn: dict[str, tuple[float, ...]] = {}
        self.missing: dict[str, str] = {}
        self.left_out: set[str] = set()
        self.failure, self.reason = episode.failure, ""
        if (failed := episode.failure) is not None:
            self.reason = f"{failed.kind} failure of {failed.owner}: {failed.message}"

    def owner(self, place: int) -> str:
        return self.scorer.owners[self.scorer.names[place]]

    def next_name(self, place: int) -> str | None:
        """The component to run at a place; None: there is none, or it does not score the task."""
        if self.failure is not None or place >= len(self.scorer.names):
            return None
        name = self.scorer.names[place]
        try:
            if self.scorer.applies(name, self.episode.task):
                return name
        except (Exception, SystemExit) as error:  # of a plugin
            self.failure = _failure_of(error, self.owner(place))
            self.reason = f"{self.owner(place)}: applies() {self.failure.message}"
        self.left_out.add(name)
        return None

    def take(self, place: int, result: _Result | BaseException) -> None:
        name = self.scorer.names[place]
        match result:
            case Score():
                self.scores[name] = result.value
                if result.per_turn is not None:
                    self.per_turn[name] = result.per_turn
            case Unscored():
                self.missing[name] = result.reason
            case _:
                self.failure = _failure_of(result, self.owner(place))
                self.missing[name] = self.failure.message
                self.reason = f"{self.failure.owner}: {self.failure.message}"

    def combine(self) -> ScoredEpisode:
        """Return the scores, with the reward if all its terms have a score."""
        expression = self.scorer.schedule.at(self.episode.step)
        # A metric that cannot score does not change the reward.
        needed = {name for weight, name in expression.terms if weight}
        declined = [name for name in self.scorer.names if name in needed & self.missing.keys()]
        reward = None
        if self.failure is None and declined:
            self.reason = f"reward '{declined[0]}' could not score: {self.missing[declined[0]]}"
        elif self.failure is None:
            reward = expression.evaluate(self.scores, self.left_out)
            if not abs(reward) <= MAX_REWARD:
                what = "too large to compare" if math.isfinite(reward) else "not a finite number"
                self.reason = f"the weighted sum {expression} is {reward:g}, {what}"
                self.failure = Failure(FailureKind.SCORING, "reward expression", self.reason)
                reward = None
        reason = self.reason if reward is None else None
        return ScoredEpisode(reward, self.scores, self.per_turn, reason, self.failure, self.missing)


def _run(
    members: Sequence[_EpisodeScores], place: int, locks: Mapping[str, CallLock]
) -> list[_Result | ScoringFailure]:
    scorer, name = members[0].scorer, members[0].scorer.names[place]
    component: Any = scorer.component_of[name]
    episodes = tuple(sheet.episode for sheet in members)
    lock = locks.get(members[0].owner(place)) or nullcontext()
    tracer = TRACER if name in scorer.schedule.names else NoOpTracer()  # not for a metric
    # Below the step: its episode is over.
    facts = {"gen_ai.conversation.id": members[0].row} if len(members) == 1 else {}
    with lock, tracer.start_as_current_span(f"reward {name}", attributes=facts) as span:
        returned = component(episodes if name in scorer.group_names else episodes[0])
        if isinstance(value := getattr(returned, "value", returned), float | int):
            span.set_attribute("gen_ai.evaluation.score.value", value)
    if name not in scorer.group_names:
        results = [returned]
    else:
        if isinstance(returned, str | Mapping) or not isinstance(returned, Iterable):
            kind = type(returned).__name__
            raise ScoringFailure(f"returned {kind} for a group; expected a list of scores")
        results = list(returned)
        if len(results) != len(episodes):
            raise ScoringFailure(
                f"returned {len(results)} scores for a group of {len(episodes)} episodes"
            )
    checked: list[_Result | ScoringFailure] = []
    for result, episode in zip(results, episodes, strict=True):
        try:
            checked.append(checked_score(component, result, len(episode.turns)))
        except ScoringFailure as error:
            checked.append(error)
    return checked


def _failure_of(error: BaseException, owner: str) -> Failure:
    """Return the failure that an error means; raise what is none of a plugin, such as Ctrl-C."""
    match error:
        case DeadlineExceeded() as late if late.owner == owner:
            # With another owner, the error is about a call that the component made itself.
            message = f"did not return within {late.timeout_s:g} s"
            return Failure(FailureKind.TIMEOUT, owner, message, late.where)
        case BudgetSpent():  # no failure: the judge's budget is spent
            return Failure(FailureKind.BUDGET, owner, str(error))
        case ScoringFailure() | EndpointFailure():
            message = str(error)
        case Exception() | SystemExit():  # a plugin's sys.exit() must not end the run
            message = f"raised {type(error).__name__}: {error}"
        case _:
            raise error
    detail = "".join(traceback.format_exception(error))
    return Failure(FailureKind.SCORING, owner, redact(message), redact(detail))


def checked_score(
    component: Reward | GroupReward, result: object, num_turns: int
) -> Score | Unscored:
    """The result as a `Score` or `Unscored`; raises `ScoringFailure` for anything else."""
    if isinstance(result, Unscored):
        return result
    raw = result.value if isinstance(result, Score) else result
    value = _finite(raw, "returned")
    if not _is_declared(value, component):
        low_high = "the range" if component.is_range else "the declared values"
        declared = ", ".join(f"{v:g}" for v in component.values)
        raise ScoringFailure(f"returned {value:g}, outside {low_high} ({declared})")
    turns = result.per_turn if isinstance(result, Score) else None
    if turns is None:
        return Score(value)
    if len(turns) != num_turns:
        raise ScoringFailure(
            f"returned {len(turns)} per-turn scores for an episode of {num_turns} turns"
        )
    return Score(value, tuple(_finite(turn, "returned the per-turn score") for turn in turns))


def _finite(raw: object, verb: str) -> float:
    if not isinstance(raw, numbers.Real):
        raise ScoringFailure(
            f"{verb} {raw!r} ({type(raw).__name__}); expected a number, Score or Unscored"
        )
    value = float(raw)
    if not math.isfinite(value):
        raise ScoringFailure(f"{verb} {value}, which is not a finite number")
    if abs(value) > MAX_REWARD:
        raise ScoringFailure(f"{verb} {value:g}, which is too large (at most {MAX_REWARD:g})")
    return value


def _declared_range(component: Reward | GroupReward, owner: str) -> tuple[float, float]:
    values, is_range = getattr(component, "values", ()), getattr(component, "is_range", None)
    try:
        low, high = min(values) + 0.0, max(values) + 0.0
        is_good = callable(component) and isinstance(is_range, bool)
        is_good &= all(v == v for v in values) and (not is_range or (*values,) == (low, high))
    except (TypeError, ValueError):
        is_good = False
    if not is_good:
        raise PluginError(
            f"{owner} declares values = {values!r} and is_range = {is_range!r}; expected a class "
            "with __call__(self, episode), or __call__(self, episodes) of a group, and with values:"
            " the numbers it may return and is_range False, or their (low, high) and True"
        )
    return low, high


def _is_declared(value: float, component: Reward | GroupReward) -> bool:
    if component.is_range:
        low, high = component.values
        return low - _TOLERANCE <= value <= high + _TOLERANCE
    return any(abs(value - allowed) <= _TOLERANCE for allowed in component.values)
