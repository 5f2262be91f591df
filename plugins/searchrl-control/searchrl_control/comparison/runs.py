"""Runs of `searchrl control train`, and their collections, as they are compared.

Owns what of their settings says which collection they were trained on. A run is data: nothing that
its folder names is loaded or asked because of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from searchrl import ConfigError, RunFolderError
from searchrl_control.comparison.sequences import Envs
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.training.folder import Run, load_weights, read_run
from searchrl_control.training.loop import Settings
from searchrl_control.training.networks import Network
from searchrl_control.training.space import Space, shared_space

_OF_TRAINING = ("difficulty", "reward", "step_cost")
"""Settings that say how a run was trained, and nothing of which lists its actions make."""


def change_envs(settings: Settings, changes: Mapping[str, Any], whose: str) -> Settings:
    """Settings with some of all their environments changed; `whose` they are is for the error.

    Raises `ConfigError`: an environment asks a server that nobody but these settings names.
    """
    for own in settings.envs:
        if own.get("reformulator") == "endpoint" and "url" not in changes:
            raise ConfigError(
                f"{whose} asks the server {own.get('url')} for other words. A run may be "
                "somebody else's, so say that you mean it: --set env.url=ADDRESS"
            )
    return settings.model_copy(update={"envs": [{**own, **changes} for own in settings.envs]})


def compared_envs(settings: Settings) -> list[dict[str, Any]]:
    """The settings of environments without those of training, each collection once."""
    found: list[dict[str, Any]] = []
    for own in settings.envs:
        kept = {name: said for name, said in own.items() if name not in _OF_TRAINING}
        if kept not in found:
            found.append(kept)
    return found


def read_runs(
    paths: Sequence[Path], changes: Mapping[str, Any]
) -> tuple[list[Run], list[dict[str, Any]]]:
    """Read runs of one training, and the settings of their environments as they are compared.

    Raises:
        RunFolderError, DamagedError: there is no run, or it has no checkpoint, or it is not whole.
        ConfigError: a run asks a server that only it names, or the runs differ in their
            environments.
    """
    runs = [read_run(path) for path in dict.fromkeys(paths)]
    envs = [
        compared_envs(change_envs(run.settings, changes, f"the run '{run.path}'")) for run in runs
    ]
    for run, own in zip(runs, envs, strict=True):
        if not run.checkpoints:
            raise RunFolderError(f"the run '{run.path}' has no checkpoint; train it again")
        if own != envs[0]:
            raise ConfigError(
                f"the runs '{runs[0].path}' and '{run.path}' were trained in environments with "
                "other settings; compare each for itself"
            )
    return runs, envs[0]


def open_envs(settings: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Envs:
    """The environments of some settings by the name of their collection, or of those in `names`.

    Raises:
        ConfigError, DataError: settings or data are wrong, two collections have one name, or none
            has a name of `names`.
    """
    found: dict[str, RetrievalControlEnv] = {}
    for one in settings:
        env = RetrievalControlEnv(**one)
        if env.world.name in found:
            raise ConfigError(
                f"two collections are called '{env.world.name}', so a table cannot tell them "
                "apart; rename the folder of one of them"
            )
        found[env.world.name] = env
    shared_space(found.values())
    for name in names:
        if name not in found:
            raise ConfigError(
                f"the runs were not trained on a collection {name!r}; theirs: {', '.join(found)}"
            )
    return {name: env for name, env in found.items() if not names or name in names}


def load_network(run: Run, step: int, space: Space) -> nn.Module:
    """The network of a run as it was at a step, ready to be asked.

    Raises:
        DamagedError: the weights cannot be read, or are those of another network.
        ConfigError: it was trained for another space.
    """
    if run.space != json.loads(json.dumps(asdict(space))):
        raise ConfigError(
            f"the network of '{run.path}' was trained for {run.space}, and the environment "
            f"shows {space}: the package or the settings have changed since"
        )
    network = Network(space, run.settings.network)
    load_weights(run, step, network)
    return network.eval()
