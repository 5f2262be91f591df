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
    """Register `env` with Gymnasium (again: replaces it) and return its id."""
    name = gym_id(env)
    # Replaced without a warning: it is the same env, perhaps with other plugin sources.
    registry.pop(name, None)
    kwargs: dict[str, Any] = {"env": env}
    if plugins:
        kwargs["plugins"] = tuple(plugins)
    register(name, entry_point=_MAKE_ENV, kwargs=kwargs)
    return name
