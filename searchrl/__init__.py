"""SearchRL: reinforcement learning of search agents. The public names, and nothing else.

Importing this package imports no torch: `train` and its neighbours load on first use. It also
makes the built-in environments known to Gymnasium, so that after `import searchrl` a plain
`gymnasium.make("searchrl/Regulations-v0")` works.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from searchrl.hookspecs import PLUGIN_API, hookimpl, hookspec

if TYPE_CHECKING:
    from searchrl.plugins import Entry, Registry, load_plugins
    from searchrl.plugins.make import make_env
    from searchrl.plugins.parts import make_judge, make_retriever_factory
    from searchrl.programs.agent import Answer, load_agent
    from searchrl.programs.evaluate import evaluate
    from searchrl.programs.train import train
    from searchrl.run_folder import Run
    from searchrl.statistics import compare, estimate

__version__ = "0.1.0"

__all__ = [
    "PLUGIN_API",
    "Answer",
    "Entry",
    "Registry",
    "Run",
    "compare",
    "estimate",
    "evaluate",
    "hookimpl",
    "hookspec",
    "load_agent",
    "load_plugins",
    "make_env",
    "make_judge",
    "make_retriever_factory",
    "train",
]

_LAZY = {
    "Answer": "searchrl.programs.agent",
    "Entry": "searchrl.plugins",
    "Registry": "searchrl.plugins",
    "Run": "searchrl.run_folder",
    "compare": "searchrl.statistics",
    "estimate": "searchrl.statistics",
    "evaluate": "searchrl.programs.evaluate",
    "load_agent": "searchrl.programs.agent",
    "load_plugins": "searchrl.plugins",
    "make_env": "searchrl.plugins.make",
    "make_judge": "searchrl.plugins.parts",
    "make_retriever_factory": "searchrl.plugins.parts",
    "train": "searchrl.programs.train",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'searchrl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_builtin_envs() -> None:
    from searchrl.envs.gym_ids import register_gym_id

    for env in ("regulations", "corpus"):
        register_gym_id(env)


_register_builtin_envs()
