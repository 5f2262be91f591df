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

Data of the criteria: `PASSAGES` for retrievers, `make_history` for alarms.
Importing this package imports no torch: names load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
