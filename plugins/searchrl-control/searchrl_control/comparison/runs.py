"""Runs of `searchrl control train`, as they are compared.

Owns what of their settings says which collection they were trained on, and their checkpoints. A run
is data: nothing that its folder names is loaded or asked because of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from searchrl import ConfigError, DamagedError, RunFolderError
from searchrl_control.environment.rewards import NDCG
from searchrl_control.environment.worlds import ENDPOINT
from searchrl_control.generation.curriculum import ANY
from searchrl_control.policies.networks import make_network
from searchrl_control.policies.space import Space
from searchrl_control.training.folder import list_checkpoints, load_weights, read_config

_OF_TRAINING = ("difficulty", "reward", "step_cost", "render_mode", "weight")
"""Settings that say how a run was trained, and nothing of which lists its actions make."""

Settings = Mapping[str, Any]


class Weights(NamedTuple):
    """A checkpoint: its step and its file."""

    step: int
    path: Path

    @property
    def name(self) -> str:
        """`step 40`."""
        return f"step {self.step}"


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run: its network, the collections it was trained on, and its checkpoints.

    `settings` are those of the environment, once for each collection. `space` is what its network
    sees and offers.
    """

    path: Path
    seed: int
    network: Mapping[str, Any]
    settings: tuple[Settings, ...]
    space: Mapping[str, Any]
    weights: tuple[Weights, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.resolve().name


def read_run(path: Path, changes: Settings | None = None) -> TrainedRun:
    """Read a run.

    Args:
        path: of the run.
        changes: settings of the environment to put over those of the run, such as where the data
            lie on this machine.

    Raises:
        RunFolderError: there is no run, or it has no checkpoint.
        DamagedError: its configuration cannot be read.
        ConfigError: see `settings_of`.
    """
    config, space = read_config(path)
    weights = tuple(Weights(*one) for one in list_checkpoints(path))
    if not weights:
        raise RunFolderError(f"the run '{path}' has no checkpoint; train it again")
    settings = settings_of(config.envs, f"the run '{path}'", changes)
    return TrainedRun(Path(path), config.seed, config.network, settings, space, weights)


def settings_of(
    envs: Sequence[Settings], whose: str, changes: Settings | None = None
) -> tuple[Settings, ...]:
    """The settings of environments as a comparison needs them, each collection once.

    Args:
        envs: of a run, or of one that is planned.
        whose: whose they are, for errors.
        changes: put over them.

    Raises:
        ConfigError: see `ensure_asks_nobody`.
    """
    ensure_asks_nobody(envs, whose, changes)
    found: list[Settings] = []
    for one in envs:
        own = {k: v for k, v in one.items() if k not in _OF_TRAINING}
        merged = {**own, **(changes or {}), "difficulty": ANY, "reward": NDCG}
        if merged not in found:
            found.append(merged)
    return tuple(found)


def ensure_asks_nobody(
    envs: Sequence[Settings], whose: str, changes: Settings | None = None
) -> None:
    """Raise `ConfigError` if an environment asks a server that only its configuration names."""
    for own in envs:
        if own.get("reformulator") == ENDPOINT and "url" not in (changes or {}):
            raise ConfigError(
                f"{whose} asks the server {own.get('url')} for other words. A run may be "
                "somebody else's, so say that you mean it: --set env.url=ADDRESS"
            )


def load_network(run: TrainedRun, weights: Weights, space: Space) -> nn.Module:
    """The network of a run with saved weights, ready to be asked.

    Raises:
        DamagedError: the weights cannot be read, or are those of another network.
        ConfigError: it was trained for another space.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if run.space != space.to_dict():
        raise ConfigError(
            f"the network of '{run.path}' was trained for {run.space}, and the environment "
            f"shows {space}: the package or the settings have changed since"
        )
    network = make_network(space, run.network)
    try:
        load_weights(network, load_file(weights.path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DamagedError.of(weights.path, str(error), "Restore it from a copy") from error
    return network.eval()


def ensure_alike(runs: Sequence[TrainedRun]) -> None:
    """Raise `ConfigError` if runs were not trained on the same collections with one environment."""
    for run in runs[1:]:
        if list(run.settings) != list(runs[0].settings):
            raise ConfigError(
                f"the runs '{runs[0].path}' and '{run.path}' were trained in environments with "
                "other settings; compare each for itself"
            )
