"""The kit for plugin authors: conformance, reward cases, scripted policies, fixtures.

Everything that `searchrl check` does, for your own tests:

- `assert_conforms("capitals.py")`: one assertion; the findings are its text.
- `conformance_cases("capitals.py")`: a `ConformanceCase` per criterion, for
  `pytest.mark.parametrize`; each is a test of its own.
- `check_plugin("capitals.py")`: the `Report` of each name: a `Result` per criterion with its
  `Status`, and a `Finding` per fault with file, line and how to fix it.

Episodes to score and turns to play:

- `reward_cases(protocol)`: the `RewardCase`s on which rewards go wrong.
- `make_episode(task, turns, protocol)`: the `Episode` of some raw turns.
- `play_episode(env, policy, protocol)`: the `Episode` that a policy plays, without a model.
- `Says(turns)`, `AnswersGold(task, protocol)`, `SaysAnything(protocol, seed)`: such policies.

Data of the criteria: `PASSAGES`, `QUERIES` and `HARD_QUERIES` for retrievers, `sample_log()` for
trackers, `make_history` and `healthy_history` for alarms, `STEPS`, `DEAD_STEPS` and `make_step` for
advantages.

`pytest_plugins = ["searchrl.testing.pytest_plugin"]` gives tests the fixture `make_plugin`.

Importing this package imports no torch and none of its modules: names load on first use.
Torch is imported only where an algorithm's loss is checked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchrl.testing.conformance import (
        ConformanceCase,
        assert_conforms,
        check_plugin,
        conformance_cases,
    )
    from searchrl.testing.criteria import Finding, Report, Result, Status
    from searchrl.testing.kinds.trackers import sample_log
    from searchrl.testing.kit.cases import RewardCase, make_episode, reward_cases
    from searchrl.testing.kit.histories import healthy_history, make_history
    from searchrl.testing.kit.policies import AnswersGold, Says, SaysAnything, play_episode
    from searchrl.testing.kit.steps import DEAD_STEPS, STEPS, make_step
    from searchrl.testing.kit.texts import HARD_QUERIES, PASSAGES, QUERIES

__all__ = [
    "DEAD_STEPS", "HARD_QUERIES", "PASSAGES", "QUERIES", "STEPS", "AnswersGold", "ConformanceCase",
    "Finding", "Report", "Result", "RewardCase", "Says", "SaysAnything", "Status",
    "assert_conforms", "check_plugin", "conformance_cases", "healthy_history", "make_episode",
    "make_history", "make_step", "play_episode", "reward_cases", "sample_log",
]  # fmt: skip

_MODULES = {
    "conformance": ("ConformanceCase", "assert_conforms", "check_plugin", "conformance_cases"),
    "criteria": ("Finding", "Report", "Result", "Status"),
    "kinds.trackers": ("sample_log",),
    "kit.cases": ("RewardCase", "make_episode", "reward_cases"),
    "kit.histories": ("healthy_history", "make_history"),
    "kit.policies": ("AnswersGold", "Says", "SaysAnything", "play_episode"),
    "kit.steps": ("DEAD_STEPS", "STEPS", "make_step"),
    "kit.texts": ("HARD_QUERIES", "PASSAGES", "QUERIES"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'searchrl.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"searchrl.testing.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
