"""Scoring an episode: runs the components, checks what they return, combines them.

Owns the classification of scoring failures: if a component raises, hangs or returns a value that
it did not declare, the rollout is unscored with an attributed `Failure`, never 0. With
`score_together`, all episodes for which a component waits do so at the same time, and a component
of groups sees all episodes of a group. Knows no tokens. The rollout driver calls it with finished
episodes.
"""

from __future__ import annotations

import functools
import math
import numbers
import traceback
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from searchrl.calls.deadline import DeadlineExceeded, Raised, Returned, call_together
from searchrl.calls.watchdog import watching
from searchrl.contracts import MAX_REWARD, GroupReward, Reward
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

_TOLERANCE = 1e-9
"""Rounding allowed at a declared value or bound: 0.1 + 0.2 is the declared 0.3."""

_Result = Score | Unscored


@dataclass(frozen=True, slots=True)
class _Call:
    """A component to run on an episode; one of groups runs once for all episodes of its group."""

    component: Reward | GroupReward
    episode: Episode
    owner: str
    is_of_group: bool


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """What scoring said about one episode.

    `reward` is None exactly when `unscored` says why. `scores` holds every component that could
    score, metrics included; one that could not is absent, never 0 or NaN, and its reason is in
    `missing`. `per_turn` holds process scores, one per turn of the episode. `failure` is set if
    something failed, and not if a component returned `Unscored`.
    """

    reward: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    per_turn: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unscored: str | None = None
    failure: Failure | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


_Scoring = Generator[_Call, Returned[_Result] | Raised, ScoredEpisode]


class Scorer:
    """Scores episodes with the expression of `schedule` at the episode's step.

    Args:
        components: by the names that the expressions use.
        group_names: which of these score groups (`contracts.GroupReward`).
        schedule: the expression of each step.
        metrics: names of further components to run, with weight 0.
        timeout_s: time limit of one call of a component (None: no limit, and no thread).
        owners: the plugin of each component, for the text of failures.
        alone: names of components that take one call at a time.
        files: whom to name for code in a plugin's file, if it never returns (see `watchdog`).

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
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.schedule = schedule
        self.names = tuple(dict.fromkeys((*schedule.names, *metrics)))
        for name in self.names:
            if name not in components:
                raise UnknownNameError(
                    f"unknown reward component '{name}'.{suggest(name, components)}"
                )
        self.components = tuple(name for name in self.names if not name.startswith(SIGNAL))
        """The names that somebody registered: all but the signals of the environment."""
        self._owners = dict(owners)
        self._group_names = frozenset(group_names)
        self._components = {name: components[name] for name in self.names}
        self.ranges: Mapping[str, tuple[float, float]] = {
            name: _declared_range(component, self._owner(name))
            for name, component in self._components.items()
        }
        """The least and the greatest value that each component declares."""
        found = {name: getattr(one, "applies", None) for name, one in self._components.items()}
        self._applies: Mapping[str, Callable[[Task], bool]] = {
            name: check for name, check in found.items() if check is not None
        }
        self.timeout_s = timeout_s
        self.files = files
        self.alone = frozenset(map(self._owner, alone))
        """Who takes one call at a time, under the names that stand in failures."""

    @property
    def headline(self) -> str:
        """What a run is judged by: `em`, or the environment's own reward, if paid; else `reward`.

        In a schedule, what its last expression pays counts.
        """
        paid = {name for weight, name in self.schedule.expressions[-1].terms if weight}
        return next((name for name in ("em", "env") if name in paid), "reward")

    def named_components(self) -> dict[str, Reward | GroupReward]:
        """The components under the names that stand in failures."""
        return {self._owner(name): one for name, one in self._components.items()}

    def score(self, episode: Episode) -> ScoredEpisode:
        """Score one finished episode, a group by itself. Never raises for what a component does."""
        (scored,) = score_together([(self, episode)])
        return scored

    def scoring(self, episode: Episode) -> _Scoring:
        """Score one episode in steps: yields each call to make and receives its outcome."""
        if (failed := episode.failure) is not None:
            reason = f"{failed.kind} failure of {failed.owner}: {failed.message}"
            return ScoredEpisode(None, unscored=reason, failure=failed)
        expression = self.schedule.at(episode.step)
        needed = {name for weight, name in expression.terms if weight}
        scores: dict[str, float] = {}
        per_turn: dict[str, tuple[float, ...]] = {}
        missing: dict[str, str] = {}
        left_out: set[str] = set()
        declined: str | None = None
        for name in self.names:
            component, owner = self._components[name], self._owner(name)
            try:
                if not self.applies(name, episode.task):
                    left_out.add(name)
                    continue
            except (Exception, SystemExit) as error:  # of a plugin
                failure = _read(Raised(error), owner)
                assert isinstance(failure, Failure)
                reason = f"{owner}: applies() {failure.message}"
                return ScoredEpisode(None, scores, per_turn, reason, failure, missing)
            outcome = yield _Call(component, episode, owner, name in self._group_names)
            result = _read(outcome, owner)
            if isinstance(result, Failure):
                reason = f"{result.owner}: {result.message}"
                missing[name] = result.message
                return ScoredEpisode(None, scores, per_turn, reason, result, missing)
            if isinstance(result, Unscored):
                missing[name] = result.reason
                # A metric that cannot score does not change the reward.
                if name in needed and declined is None:
                    declined = f"reward '{name}' could not score: {result.reason}"
                continue
            scores[name] = result.value
            if result.per_turn is not None:
                per_turn[name] = result.per_turn
        if declined is not None:
            return ScoredEpisode(None, scores, per_turn, declined, None, missing)
        reward = expression.evaluate(scores, left_out)
        if not abs(reward) <= MAX_REWARD:
            what = "too large to compare" if math.isfinite(reward) else "not a finite number"
            message = f"the weighted sum {expression} is {reward:g}, {what}"
            failure = Failure(FailureKind.SCORING, "reward expression", message)
            return ScoredEpisode(None, scores, per_turn, message, failure, missing)
        return ScoredEpisode(reward, scores, per_turn, missing=missing)

    def is_selective(self, name: str) -> bool:
        """Whether a component says something about some tasks only."""
        return name in self._applies

    def applies(self, name: str, task: Task | None) -> bool:
        """Whether a component says anything about a task; raises what a plugin's check raises.

        Where it does not, its term is left out of the reward, for the whole group alike, and it is
        no metric. Of a task that nobody describes (None) nothing is known, so it may.
        """
        if task is None or name not in self._applies:
            return True
        with watching(self.timeout_s, self.files):
            return bool(self._applies[name](task))

    def _owner(self, name: str) -> str:
        owner = f"reward '{name}'"
        return f"{owner} of {self._owners[name]}" if name in self._owners else owner


def score_together(
    work: Sequence[tuple[Scorer, Episode]], groups: Sequence[Hashable] = ()
) -> list[ScoredEpisode]:
    """Score many finished episodes, each with its scorer; results in order.

    One component after the other over all episodes. Calls of a component that wait overlap, unless
    it takes one at a time; quick calls run one after another.

    Args:
        work: every episode with its scorer.
        groups: the group of each; the episodes of one have one scorer. Empty: each is alone.
    """
    group_of = groups or range(len(work))
    alone = frozenset[str]().union(*(scorer.alone for scorer, _ in work))
    files = {file: who for scorer, _ in work for file, who in scorer.files.items()}
    scored: dict[int, ScoredEpisode] = {}
    running = {i: scorer.scoring(episode) for i, (scorer, episode) in enumerate(work)}
    sent: dict[int, Returned[_Result] | Raised | None] = dict.fromkeys(running)
    while sent:
        asked: dict[int, _Call] = {}
        for i, outcome in sent.items():
            try:
                asked[i] = next(running[i]) if outcome is None else running[i].send(outcome)
            except StopIteration as done:
                scored[i] = done.value
        # The members of a group ask for the same component at the same time.
        together: dict[Hashable, list[int]] = {}
        for i, call in asked.items():
            key = ("group", group_of[i]) if call.is_of_group else ("episode", i)
            together.setdefault(key, []).append(i)
        sent = {}
        for timeout_s in dict.fromkeys(work[i][0].timeout_s for i in asked):
            those = [m for m in together.values() if work[m[0]][0].timeout_s == timeout_s]
            calls = [
                (functools.partial(_run, [asked[i] for i in members]), asked[members[0]].owner)
                for members in those
            ]
            with watching(timeout_s, files):
                outcomes = call_together(calls, timeout_s=timeout_s, alone=alone)
            for members, shared in zip(those, outcomes, strict=True):
                sent |= zip(members, _each(shared, len(members)), strict=True)
    return [scored[i] for i in range(len(work))]


def _run(calls: Sequence[_Call]) -> list[Returned[_Result] | Raised]:
    """Run one component on an episode, or on the episodes of a group; what it gave to each."""
    component: Any = calls[0].component
    episodes = tuple(call.episode for call in calls)
    if not calls[0].is_of_group:
        results = [component(episodes[0])]
    else:
        returned = component(episodes)
        if isinstance(returned, str | Mapping) or not isinstance(returned, Iterable):
            kind = type(returned).__name__
            raise ScoringFailure(f"returned {kind} for a group; expected a list of scores")
        results = list(returned)
        if len(results) != len(episodes):
            raise ScoringFailure(
                f"returned {len(results)} scores for a group of {len(episodes)} episodes"
            )
    return [_check_one(component, *pair) for pair in zip(results, episodes, strict=True)]


def _check_one(
    component: Reward | GroupReward, result: object, episode: Episode
) -> Returned[_Result] | Raised:
    try:
        return Returned(_checked(component, result, len(episode.turns)))
    except ScoringFailure as error:
        return Raised(error)


def _each(
    outcome: Returned[list[Returned[_Result] | Raised]] | Raised, count: int
) -> list[Returned[_Result] | Raised]:
    """The outcome for every episode of a call; one that failed as a whole failed for all."""
    return outcome.value if isinstance(outcome, Returned) else [outcome] * count


def _read(outcome: Returned[_Result] | Raised, owner: str) -> _Result | Failure:
    """The result of a call; if the call failed, a failure that names its owner."""
    if isinstance(outcome, Returned):
        return outcome.value
    match outcome.error:
        case DeadlineExceeded() as late if late.owner == owner:
            # With another owner, the error is about a call that the component made itself.
            message = f"did not return within {late.timeout_s:g} s"
            return Failure(FailureKind.TIMEOUT, owner, message, late.where)
        case BudgetSpent() as error:  # nobody failed: what a judge may cost is spent
            return Failure(FailureKind.BUDGET, owner, str(error))
        case ScoringFailure() | EndpointFailure() as error:
            message = str(error)
        case Exception() | SystemExit() as error:  # a plugin's sys.exit() must not end the run
            message = f"raised {type(error).__name__}: {error}"
        case error:
            raise error
    detail = "".join(traceback.format_exception(error))
    return Failure(FailureKind.SCORING, owner, message, detail)


def _checked(component: Reward | GroupReward, result: object, num_turns: int) -> Score | Unscored:
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
    """The least and the greatest declared value; `PluginError` says what is missing."""
    if not callable(component):
        raise PluginError(
            f"{owner} is a {type(component).__name__}, which cannot be called; give its class "
            "__call__(self, episode), or __call__(self, episodes) if it scores a group"
        )
    values = getattr(component, "values", None)
    is_range = getattr(component, "is_range", None)
    if (
        not isinstance(values, tuple | list)
        or not all(isinstance(v, numbers.Real) and not math.isnan(v) for v in values)
        or not isinstance(is_range, bool)
        or (len(values) != 2 or values[0] > values[1] if is_range else not values)
    ):
        raise PluginError(
            f"{owner} declares values = {values!r} and is_range = {is_range!r}; expected the "
            "numbers it may return as a tuple and False, or their (low, high) and True"
        )
    return float(min(values)), float(max(values))


def _is_declared(value: float, component: Reward | GroupReward) -> bool:
    if component.is_range:
        low, high = component.values
        return low - _TOLERANCE <= value <= high + _TOLERANCE
    return any(abs(value - allowed) <= _TOLERANCE for allowed in component.values)
