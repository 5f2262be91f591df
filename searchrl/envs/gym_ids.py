"""Environments and Gymnasium ids: `my_env` is `searchrl/MyEnv-v0`, a class `MD` of a file `MD-v0`.

A registration holds names and plugin sources only, so it survives a spawned worker.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import register, registry

_MAKE_ENV = "searchrl.plugins.parts:make_env"


def register_gym_id(env: str, plugins: Sequence[str] = ()) -> str:
    """Register `gsm-tools` as `searchrl/GsmTools-v0` (again: replaces it); a package's id stays."""
    words = [word for word in re.split(r"[-_.]+", env) if word]
    name = f"searchrl/{''.join(word[0].upper() + word[1:] for word in words)}-v0"
    if name in registry and registry[name].entry_point != _MAKE_ENV:
        return name  # the package's own, such as one that is not in words
    # Replaced without a warning: it is the same env, perhaps with other plugin sources.
    registry.pop(name, None)
    sources = {"plugins": tuple(plugins)} if plugins else {}
    register(name, entry_point=_MAKE_ENV, kwargs={"env": env, **sources})
    return name


def is_of_gymnasium(name: str) -> bool:
    """True for an id of Gymnasium's own: to make it imports no code of others."""
    spec = registry.get(name)
    made_by = spec.entry_point if spec is not None else None
    return isinstance(made_by, str) and made_by.startswith("gymnasium.")


SCHEME = "gym:"
"""Before an id of Gymnasium, it makes the name of an environment."""


PYTHON = "python/"
"""The namespace of classes that a Python program gave."""


def adopt_envs(module: ModuleType) -> tuple[str, ...]:
    """Make ids of all environment classes of a loaded file; returns those that are the file's."""
    stem = Path(module.__file__ or "").stem
    for spec in list(registry.values()):
        if isinstance(spec.entry_point, str):
            name, _, attribute = spec.entry_point.partition(":")
            if name == stem and isinstance(getattr(module, attribute, None), type):
                spec.entry_point = getattr(module, attribute)
    known = {id(spec.entry_point) for spec in registry.values()}
    for name, value in vars(module).items():
        is_own = isinstance(value, type) and value.__module__ == module.__name__
        if not is_own or id(value) in known or not _is_foreign(value):
            continue
        there = registry.get(f"{name}-v0")
        if there is not None and isinstance(there.entry_point, type):
            registry.pop(there.id)  # of the file as it was before an edit
        if f"{name}-v0" not in registry:
            register(f"{name}-v0", entry_point=value)
    return tuple(find_ids(module.__file__ or ""))


def _is_foreign(made: type) -> bool:
    """True for an environment of Gymnasium alone; one of ours is registered by a hook."""
    is_ours = any(parent.__module__.partition(".")[0] == "searchrl" for parent in made.__mro__)
    is_env = issubclass(made, gymnasium.Env) and not is_ours
    return is_env and "protocol" not in inspect.signature(made).parameters


def find_ids(file: str) -> dict[str, int]:
    """The ids whose environments a plugin file makes, and the line of each class or function."""
    lines: dict[str, int] = {}
    for name, spec in registry.items():
        made: Any = spec.entry_point
        module = sys.modules.get(getattr(made, "__module__", None) or "")
        if getattr(module, "__file__", None) == file:
            lines[name] = 0
            with suppress(OSError, TypeError):  # made at run time
                lines[name] = inspect.getsourcelines(made)[1]
    return lines
