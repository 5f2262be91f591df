"""The kit for plugin authors: conformance, reward cases, scripted policies.

`assert_conforms("capitals.py")` is `searchrl check` as one assertion, and `check_plugin` the report
of each name: a result per criterion with its `Status`. `reward_cases` and `make_episode` give
episodes to score, `play_episode` one that a policy plays, such as `Says(turns)`. `PASSAGES` and
`make_history` are what retrievers and alarms are tried on.
Importing this package imports no torch: names load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
