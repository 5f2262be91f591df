"""Criteria of wrappers: X1 to X6. One around a sound environment is held to those of environments.

Nobody plays (`serve` is not called), so one that serves the policy passes turns on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from searchrl.testing.criteria import Criterion, Problem, criterion
from searchrl.testing.kinds import envs
from searchrl.testing.kit.subject import Subject

INNER = "regulations"
"""The environment that is wrapped."""


@dataclass(frozen=True, kw_only=True)
class _Wrapped(Subject):
    """The environment in the wrapper, as a subject of the criteria of environments."""

    wrapper: Subject

    def make(self, *args: Any, **parts: Any) -> Any:
        return self.wrapper.make(super().make(*args, **parts))


def _as_of_envs(number: str, of_envs: Criterion) -> Criterion:
    def check(subject: Subject) -> Iterator[Problem]:
        registry = subject.registry
        wrapped = _Wrapped(registry, registry.get("env", INNER), wrapper=subject)
        for one in of_envs.check(wrapped):
            # What did not raise is told of the wrapper: the environment in it is sound.
            at = one.at if isinstance(one.at, BaseException) else subject.entry.load()
            yield replace(one, at=at)

    return criterion(number)(check)


_is_made = _as_of_envs("X1", envs._is_made)
_begins = _as_of_envs("X2", envs._begins)
_describes_tasks = _as_of_envs("X3", envs._describes_tasks)
_repeats_tasks = _as_of_envs("X4", envs._repeats_tasks)
_forgets = _as_of_envs("X5", envs._forgets)
_returns_five = _as_of_envs("X6", envs._returns_five)
