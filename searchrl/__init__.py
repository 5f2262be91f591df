"""SearchRL: reinforcement learning of search agents. The public names, and nothing else.

`train`, `evaluate`, `load_agent`, `Run` and `make_env` do what the commands do; `hookimpl` and
`Register` are for plugins, `load_plugins` and its `Registry` for those who use other plugins. Then
the errors, and helpers for settings, messages and files of packages. Names load on first use, so
importing this package imports no torch. It also makes the built-in environments known to
Gymnasium: after `import searchrl`, `gymnasium.make("searchrl/Regulations-v0")` works.
"""

import lazy_loader

from searchrl.envs.gym_ids import register_gym_id

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

for _env in ("regulations", "corpus"):
    register_gym_id(_env)
