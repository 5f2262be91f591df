"""Scoring an episode: runs the components, checks what they return, combines them.

Owns the classification of everything that can go wrong while scoring: a component that raises,
hangs or leaves its declared values makes the rollout unscored with an attributed `Failure`, never
a zero. Does not know tokens or groups; the rollout driver, `eval` and `score` call it with
finished episodes and count what it reports.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from searchrl.contracts import Reward
from searchrl.core.episode import Episode, Failure, FailureKind, Score, Unscored
from searchrl.deadline import DeadlineExceeded, call_with_deadline
from searchrl.errors import ScoringFailure, UnknownNameError, suggest
from searchrl.rewards.expression import RewardSchedule

_TOLERANCE = 1e-9
"""Rounding allowed at a declared value or bound: 0.1 + 0.2 is the declared 0.3."""


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """What scoring said about one episode.

    `reward` is None exactly when `unscored` says why. `scores` holds every component that could
    score, metrics included; one that could not is absent there, never 0 or NaN, and its reason is
    in `missing`. `per_turn` holds process scores, one per turn of the episode. `failure` is set
    when something failed (as opposed to a component that declined).
    """

    reward: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    per_turn: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unscored: str | None = None
    failure: Failure | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


class Scorer:
    """Scores episodes with the expression that `schedule` holds at the episode's step.

    `components` by the names the expressions use; `metrics` are run besides, with weight 0;
    `owners` says whose each component is, for the failure text. Each call of a component may take
    `timeout_s` seconds (None: no limit, and no thread). Raises `UnknownNameError` at once for a
    name without a component.
    """

    def __init__(
        self,
        components: Mapping[str, Reward],
        schedule: RewardSchedule,
        *,
        metrics: Sequence[str] = (),
        timeout_s: float | None = 30.0,
        owners: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.schedule = schedule
        self.names = tuple(dict.fromkeys((*schedule.names, *metrics)))
        for name in self.names:
            if name not in components:
                raise UnknownNameError(
                    f"unknown reward component '{name}'.{suggest(name, components)}"
                )
        self._components = {name: components[name] for name in self.names}
        self.ranges: Mapping[str, tuple[float, float]] = {
            name: (float(min(component.values)), float(max(component.values)))
            for name, component in self._components.items()
        }
        """The least and the greatest value each component declares."""
        self._timeout_s = timeout_s
        self._owners = dict(owners)

    def score(self, episode: Episode) -> ScoredEpisode:
        """Score one finished episode. Never raises for what a component does."""
        if (failed := episode.failure) is not None:
            reason = f"{failed.kind} failure of {failed.owner}: {failed.message}"
            return ScoredEpisode(None, unscored=reason, failure=failed)
        expression = self.schedule.at(episode.step)
        needed = {name for weight, name in expression.terms if weight}
        scores: dict[str, float] = {}
        per_turn: dict[str, tuple[float, ...]] = {}
        missing: dict[str, str] = {}
        declined: str | None = None
        for name in self.names:
            result = self._run(name, episode)
            if isinstance(result, Failure):
                reason = f"{result.owner}: {result.message}"
                missing[name] = result.message
                return ScoredEpisode(None, scores, per_turn, reason, result, missing)
            if isinstance(result, Unscored):
                missing[name] = result.reason
                # A metric that cannot score takes nothing from the reward.
                if name in needed and declined is None:
                    declined = f"reward '{name}' could not score: {result.reason}"
                continue
            scores[name] = result.value
            if result.per_turn is not None:
                per_turn[name] = result.per_turn
        if declined is not None:
            return ScoredEpisode(None, scores, per_turn, declined, None, missing)
        reward = expression.evaluate(scores)
        if not math.isfinite(reward):
            message = f"the weighted sum {expression} is {reward}, not a finite number"
            failure = Failure(FailureKind.SCORING, "reward expression", message)
            return ScoredEpisode(None, scores, per_turn, message, failure, missing)
        return ScoredEpisode(reward, scores, per_turn, missing=missing)

    def _run(self, name: str, episode: Episode) -> Score | Unscored | Failure:
        component = self._components[name]
        owner = f"reward '{name}'"
        if name in self._owners:
            owner += f" of {self._owners[name]}"
        try:
            value = call_with_deadline(component, episode, timeout_s=self._timeout_s, owner=owner)
            return _checked(component, value, len(episode.turns))
        except DeadlineExceeded as late:
            if late.owner != owner:  # raised by the component about a call of its own
                return _failure(FailureKind.SCORING, owner, late)
            message = f"did not return within {late.timeout_s:g} s"
            return Failure(FailureKind.TIMEOUT, owner, message, late.where)
        except ScoringFailure as invalid:
            return Failure(FailureKind.SCORING, owner, str(invalid), traceback.format_exc())
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            return _failure(FailureKind.SCORING, owner, error)


def _failure(kind: FailureKind, owner: str, error: BaseException) -> Failure:
    message = f"raised {type(error).__name__}: {error}"
    return Failure(kind, owner, message, "".join(traceback.format_exception(error)))


def _checked(component: Reward, result: object, num_turns: int) -> Score | Unscored:
    """The result as a `Score` or `Unscored`; `ScoringFailure` says what else came back."""
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
    return value


def _is_declared(value: float, component: Reward) -> bool:
    if component.is_range:
        low, high = component.values
        return low - _TOLERANCE <= value <= high + _TOLERANCE
    return any(abs(value - allowed) <= _TOLERANCE for allowed in component.values)
