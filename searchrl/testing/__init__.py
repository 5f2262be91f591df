"""The kit for plugin authors: conformance, reward cases, scripted policies.

`assert_conforms("capitals.py")` is `searchrl check` as one assertion, and `check_plugin` the
`Report` of each name. `reward_cases`, `make_episode` and `play_episode` give episodes to score,
`PASSAGES` and `make_history` what retrievers and alarms are tried on.
Importing this package imports no torch: names load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
