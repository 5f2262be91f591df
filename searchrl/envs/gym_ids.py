"""Registered environments as Gymnasium ids: `my_env` is `searchrl/MyEnv-v0`.

A registration holds names and plugin sources only, so it survives `AsyncVectorEnv` and a spawned
worker. Knows no environment: `searchrl.plugins.make` builds one when Gymnasium asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gymnasium.envs.registration import register, registry

_MAKE_ENV = "searchrl.plugins.make:make_env"


def gym_id(env: str) -> str:
    """The Gymnasium id of a registered name: `gsm-tools` is `searchrl/GsmTools-v0`."""
    words = [word for word in re.split(r"[-_.]+", env) if word]
    return f"searchrl/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def register_gym_id(env: str, plugins: Sequence[str] = ()) -> str:
    """Register `env` with Gymnasium (again: replaces it) and return its id.

    An id that a package registered itself stays.
    """
    name = gym_id(env)
    if name in registry and registry[name].entry_point != _MAKE_ENV:
        return name  # the package's own, such as one that is not in words
    # Replaced without a warning: it is the same env, perhaps with other plugin sources.
    registry.pop(name, None)
    kwargs: dict[str, Any] = {"env": env}
    if plugins:
        kwargs["plugins"] = tuple(plugins)
    register(name, entry_point=_MAKE_ENV, kwargs=kwargs)
    return name


def is_of_gymnasium(name: str) -> bool:
    """Whether an id is one of Gymnasium's own: to make it imports no code of others."""
    spec = registry.get(name)
    made_by = spec.entry_point if spec is not None else None
    return isinstance(made_by, str) and made_by.startswith("gymnasium.")
