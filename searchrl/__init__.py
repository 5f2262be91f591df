"""SearchRL: reinforcement learning of search agents. The public names, and nothing else.

Importing this package imports no torch: `train` and its neighbours load on first use. It also
makes the built-in environments known to Gymnasium, so that after `import searchrl` a plain
`gymnasium.make("searchrl/Regulations-v0")` works.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from searchrl.hookspecs import PLUGIN_API, hookimpl, hookspec

if TYPE_CHECKING:
    from searchrl.agent import Answer, load_agent
    from searchrl.evaluate import evaluate
    from searchrl.make import make_env
    from searchrl.run_folder import Run
    from searchrl.train import train

__version__ = "0.1.0"

__all__ = [
    "PLUGIN_API",
    "Answer",
    "Run",
    "evaluate",
    "hookimpl",
    "hookspec",
    "load_agent",
    "make_env",
    "train",
]

_LAZY = {
    "Answer": "searchrl.agent",
    "Run": "searchrl.run_folder",
    "evaluate": "searchrl.evaluate",
    "load_agent": "searchrl.agent",
    "make_env": "searchrl.make",
    "train": "searchrl.train",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'searchrl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This module's own type: keeps `searchrl.train` the function, whatever was imported before.

    The import system would bind the submodule `searchrl.train` to the same name and so decide by
    the order of imports which of the two it is. `from searchrl.train import x` is not affected.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _register_builtin_envs() -> None:
    from searchrl.envs.gym_ids import register_gym_id

    for env in ("regulations", "corpus"):
        register_gym_id(env)


_register_builtin_envs()
