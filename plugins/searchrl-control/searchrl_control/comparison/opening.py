"""Collections as a comparison needs them: one environment each, by a name that tables use.

Owns how settings become environments, checked as those of a run are, and that names differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from searchrl import ConfigError, Registry, suggest
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.worlds import ENV

Envs = Mapping[str, RetrievalControlEnv]
"""The name of a collection -> its environment, without levels of difficulty."""


def open_envs(settings: Iterable[Mapping[str, Any]], registry: Registry) -> Envs:
    """Open the environments of some settings; each collection is opened once per process.

    Raises:
        ConfigError, DataError: settings or data are wrong, or two collections have one name.
    """
    entry = registry.get("env", ENV)
    found: dict[str, RetrievalControlEnv] = {}
    for one in settings:
        env = RetrievalControlEnv(**entry.ensure_settings(one))
        if env.world.name in found:
            raise ConfigError(
                f"two collections are called '{env.world.name}', so a table cannot tell them "
                "apart; rename the folder of one of them"
            )
        found[env.world.name] = env
    if not found:
        raise ConfigError("name at least one collection: --collection FOLDER")
    first = next(iter(found.values()))
    for env in found.values():
        if env.actions != first.actions or env.max_steps != first.max_steps:
            raise ConfigError(
                f"the collections '{first.world.name}' and '{env.world.name}' are played with "
                "other actions, or another number of steps; use the same for all"
            )
    return found


def choose_envs(envs: Envs, names: Sequence[str]) -> Envs:
    """The environments of these collections, in their own order; all of them without a name.

    Raises:
        ConfigError: there is no such collection among them.
    """
    for name in names:
        if name not in envs:
            raise ConfigError(
                f"the runs were not trained on a collection {name!r}.{suggest(name, envs)}"
            )
    return {name: env for name, env in envs.items() if not names or name in names}
