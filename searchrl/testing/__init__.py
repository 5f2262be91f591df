"""The kit for plugin authors: conformance, reward cases, scripted policies.

Everything that `searchrl check` does, for your own tests:

- `assert_conforms("capitals.py")`: one assertion; the findings are its text.
- `check_plugin("capitals.py")`: the `Report` of each name: a `Result` per criterion with its
  `Status`, and a `Finding` per fault with file, line and how to fix it.

Episodes to score and turns to play:

- `reward_cases(protocol)`: the `RewardCase`s on which rewards go wrong.
- `make_episode(task, turns, protocol)`: the `Episode` of some raw turns.
- `play_episode(env, policy, protocol)`: the `Episode` that a policy plays, without a model;
  `Says(turns)` is such a policy.

Data of the criteria: `PASSAGES`, `QUERIES` and `HARD_QUERIES` for retrievers, `sample_log()` for
trackers, `make_history` and `healthy_history` for alarms, `STEPS`, `DEAD_STEPS` and `make_step` for
advantages.

Torch is imported only where an algorithm's loss is checked.
"""

from searchrl.testing.conformance import assert_conforms, check_plugin
from searchrl.testing.criteria import Finding, Report, Result, Status
from searchrl.testing.kinds.trackers import sample_log
from searchrl.testing.kit.cases import RewardCase, make_episode, reward_cases
from searchrl.testing.kit.histories import healthy_history, make_history
from searchrl.testing.kit.policies import Says, play_episode
from searchrl.testing.kit.steps import DEAD_STEPS, STEPS, make_step
from searchrl.testing.kit.texts import HARD_QUERIES, PASSAGES, QUERIES

__all__ = [
    "DEAD_STEPS", "HARD_QUERIES", "PASSAGES", "QUERIES", "STEPS", "Finding", "Report", "Result",
    "RewardCase", "Says", "Status", "assert_conforms", "check_plugin", "healthy_history",
    "make_episode", "make_history", "make_step", "play_episode", "reward_cases", "sample_log",
]  # fmt: skip
