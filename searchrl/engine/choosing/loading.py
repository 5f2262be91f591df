"""From a configuration and its worlds to a network that can choose, new or with saved weights.

Owns what a policy's folder must hold, and that all tasks of a run show and offer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from searchrl.config import RunConfig
from searchrl.contracts import CHOICE_TURNS, ChoiceSpace
from searchrl.engine.choosing.policy import DESCRIPTION, WEIGHTS, Choices
from searchrl.engine.episodes.world import TaskWorld
from searchrl.errors import ConfigError, DamagedError, PluginError
from searchrl.plugins import Registry
from searchrl.run_folder.policies import read_description


def make_choices(
    config: RunConfig,
    registry: Registry,
    worlds: Sequence[TaskWorld],
    device: torch.device,
    folder: Path | None = None,
) -> Choices:
    """The policy that a configuration names; `folder` has its weights, if it is not a new one.

    Raises:
        ConfigError: the tasks are not of choices, or of different ones; the folder is of another
            policy.
        PluginError: the factory makes no `torch.nn.Module`.
        DamagedError: the folder cannot be read.
    """
    name = config.policy.name
    entry = registry.get("policy", name)
    space = ensure_one_space(name, worlds)
    torch.manual_seed(config.seed)
    network: Any = entry.make(space, **config.policy.settings)
    if not isinstance(network, nn.Module):
        raise PluginError(
            f"{entry}: its factory makes a {type(network).__name__}; expected a torch.nn.Module"
        )
    source = f"a new network '{name}'" if folder is None else str(folder)
    settings = config.policy.settings
    policy = Choices(network.to(device), space, device, name, settings, str(entry.owner), source)
    if folder is not None:
        _ensure_described(folder, policy)
        try:
            saved = load_file(folder / WEIGHTS, device=str(device))
        except (OSError, SafetensorError) as error:
            raise DamagedError.of(folder / WEIGHTS, str(error), "Restore it from a copy") from error
        policy.load(folder, saved)
    return policy


def ensure_one_space(policy: str, worlds: Sequence[TaskWorld]) -> ChoiceSpace:
    """What all tasks show and offer.

    Raises:
        ConfigError: an environment is one of text, or two differ.
    """
    found: ChoiceSpace | None = None
    for world in worlds:
        if world.entry.turns != CHOICE_TURNS:
            raise ConfigError(
                f"policy '{policy}' chooses actions by number, and a turn of env '{world.name}' is "
                "text; use --policy model, or an environment of choices (turns='choice')"
            )
        space = world.space
        if found is not None and space != found:
            raise ConfigError(
                f"policy '{policy}' is one network, and env '{world.name}' shows {space}, but env "
                f"'{worlds[0].name}' {found}; train on environments with the same spaces"
            )
        found = space
    assert found is not None
    return found


def _ensure_described(folder: Path, policy: Choices) -> None:
    path = folder / DESCRIPTION
    try:
        said = read_description(folder)
        name, space = said["name"], ChoiceSpace.from_dict(said["space"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedError.of(path, str(error), "Restore it from a copy") from error
    if (name, space) != (policy.name, policy.space):
        raise ConfigError(
            f"'{folder}' holds policy '{name}' for {space}; asked for is policy '{policy.name}' "
            f"for {policy.space}"
        )
