"""The limit of failures: a few episodes are left out and reported, too many end the program.

A step in which no episode could be scored ends training as well: there is nothing to learn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from searchrl.core.episode import Failure, FailureKind
from searchrl.engine.rollout.rollout import Rollout
from searchrl.errors import BudgetSpent, FailureLimitError

_TOLD = 3
"""Reasons that are told, at most."""


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """Handles failed episodes: tracebacks are saved, a note is shown; too many end the program.

    `program` is what stops; `save` writes a text under a name and returns its path; `note` shows
    the user a line; `remedy` says how to go on once the fault is fixed.
    """

    program: str
    max_frac: float
    save: Callable[[str, str], Path]
    note: Callable[[str], None]
    remedy: str = "Fix it, or raise the limit with --set rollout.max_failure_frac=…"

    def ensure(self, rollouts: Sequence[Rollout], where: str, name: str) -> None:
        """Let a few failures pass; they are saved under `name` and reported.

        Episodes that a budget ended are reported, but nobody failed there. FailureLimitError if
        more than `max_frac` of the episodes failed.
        """
        if unpaid := _find_unpaid(rollouts):
            self.note(
                f"{where}: {len(unpaid)} of {len(rollouts)} episodes have no score and are left "
                f"out: {unpaid[0].message}"
            )
        failures = [
            (r, f)
            for r in rollouts
            if (f := r.scored.failure) is not None and f.kind is not FailureKind.BUDGET
        ]
        if not failures:
            return
        path = self.save(
            name,
            "\n\n".join(
                f"{r.trajectory.rollout_id} ({r.episode.task.id})\n"
                f"{failure.kind}: {failure.owner}: {failure.message}\n{failure.detail}"
                for r, failure in failures
            ),
        )
        first = failures[0][1]
        cause = f"{first.kind} failure of {first.owner}: {first.message}"
        share = f"{len(failures)} of {len(rollouts)} episodes failed"
        self.note(f"{where}: {share} and are left out; {cause} ({path})")
        if len(failures) > self.max_frac * len(rollouts):
            raise FailureLimitError(
                f"{self.program} stopped at {where}: {share} "
                f"(limit: rollout.max_failure_frac={self.max_frac:g}).\n"
                f"First: {cause}\nTracebacks: {path}\n{self.remedy}"
            )

    def ensure_paid(self, rollouts: Sequence[Rollout], where: str) -> None:
        """Raise BudgetSpent for a step that a budget ended: half of it is no fair sample."""
        if unpaid := _find_unpaid(rollouts):
            raise BudgetSpent(
                f"{self.program} stopped before {where}, of which {len(unpaid)} of "
                f"{len(rollouts)} episodes have no score: {unpaid[0].message}. A run that is "
                "continued begins a new budget"
            )

    def ensure_scored(self, rollouts: Sequence[Rollout], where: str) -> None:
        """Raise FailureLimitError with the reasons if not one of the rollouts has a reward.

        Rollouts that failed are those of `ensure`: a limit of 1 lets a step of them alone pass.
        """
        declined = [rollout for rollout in rollouts if rollout.scored.failure is None]
        if not declined or any(rollout.is_scored for rollout in declined):
            return
        env = rollouts[0].world.name
        raise FailureLimitError(
            f"{self.program} stopped at {where}: none of its {len(rollouts)} rollouts could be "
            f"scored.\n{tell_unscored(rollouts)}\n"
            f"Choose a reward that can score the tasks of env '{env}' (--reward env is the sum of "
            "its own rewards), or fix the component that says so"
        )


def tell_unscored(rollouts: Sequence[Rollout]) -> str:
    """The reasons why rollouts have no reward, with their counts, a line each; "" if all have."""
    reasons = Counter(r.scored.unscored for r in rollouts if not r.is_scored)
    return "\n".join(f"  {count} × {reason}" for reason, count in reasons.most_common(_TOLD))


def _find_unpaid(rollouts: Sequence[Rollout]) -> list[Failure]:
    failures = (rollout.scored.failure for rollout in rollouts)
    return [f for f in failures if f is not None and f.kind is FailureKind.BUDGET]
