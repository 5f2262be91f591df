"""Runs of `searchrl train` whose network decides in this environment, as they are compared.

Owns which runs those are, what of their settings says which collection they were trained on, and
their checkpoints. A run is data: nothing that its folder names is loaded or asked because of it.
Callers: the commands of this package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.config import RunConfig
from searchrl.contracts import ChoicePolicy, ChoiceSpace
from searchrl.errors import ConfigError, DamagedError, RunFolderError
from searchrl.plugins import Registry
from searchrl.run_folder import Run, verify_checkpoint
from searchrl_control.environment.rewards import NDCG
from searchrl_control.environment.worlds import ENDPOINT, ENV
from searchrl_control.generation.curriculum import ANY

_WEIGHTS, _DESCRIBED = "weights.safetensors", "policy.json"
_POLICY, _CHECKPOINTS, _STEP = "policy", "checkpoints", "step_"
_OF_TRAINING = ("difficulty", "reward", "step_cost", "render_mode")
"""Settings that say how a run was trained, and nothing of which lists its actions make."""

Settings = Mapping[str, Any]


class Weights(NamedTuple):
    """Saved weights: the step of the checkpoint, None for the final ones, and their folder."""

    step: int | None
    folder: Path

    @property
    def name(self) -> str:
        """`step 40` or `final`."""
        return "final" if self.step is None else f"step {self.step}"


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run: its network by name, the collections it was trained on, and its checkpoints.

    `settings` are those of the environment, once for each collection. `notes` say which checkpoints
    are damaged.
    """

    path: Path
    seed: int
    policy: str
    policy_settings: Mapping[str, Any]
    settings: tuple[Settings, ...]
    weights: tuple[Weights, ...]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.resolve().name


def read_run(path: Path, registry: Registry, changes: Settings | None = None) -> TrainedRun:
    """Read a run of `retrieval-control` whose policy is a network.

    Args:
        path: of the run.
        registry: what is installed: the policy must be there.
        changes: settings of the environment to put over those of the run, such as where the data
            lie on this machine.

    Raises:
        RunFolderError: there is no run, or none of its weights is whole.
        ConfigError: it plays another environment, or its policy is no network.
    """
    run = Run.open(path)
    config = run.config
    settings = settings_of(config, f"the run '{path}'", changes)
    if config.policy.name not in registry.spellings("policy"):
        raise ConfigError(
            f"the policy of the run '{path}' is '{config.policy.name}', which is no network that "
            f"is installed here; a model that plays {ENV} in words is measured by: "
            f"searchrl eval {path}"
        )
    weights, notes = _find_weights(run.path)
    if not weights:
        raise RunFolderError(
            f"the run '{path}' has no weights that are whole. {' '.join(notes)} Train it again, or "
            "restore its checkpoints from a copy"
        )
    return TrainedRun(
        Path(path),
        config.seed,
        config.policy.name,
        dict(config.policy.settings),
        settings,
        weights,
        notes,
    )


def settings_of(
    config: RunConfig, whose: str, changes: Settings | None = None
) -> tuple[Settings, ...]:
    """The settings of the environment of every task of a configuration, each collection once.

    Args:
        config: of a run, or of one that is planned.
        whose: whose configuration it is, for errors.
        changes: put over them.

    Raises:
        ConfigError: a task plays another environment, or the environment asks a server that only
            the configuration names.
    """
    found: list[Settings] = []
    for task in config.tasks:
        if task.env.name.rpartition(":")[2] != ENV:
            raise ConfigError(
                f"{whose} plays env '{task.env.name}'; this command is for {ENV} alone. Other "
                "environments are compared by: searchrl eval RUN --against OTHER"
            )
        own = {k: v for k, v in task.env.settings.items() if k not in _OF_TRAINING}
        if own.get("reformulator") == ENDPOINT and "url" not in (changes or {}):
            raise ConfigError(
                f"{whose} asks the server {own.get('url')} for other words. A run may be "
                "somebody else's, so say that you mean it: --set env.url=ADDRESS"
            )
        merged = {**own, **(changes or {}), "difficulty": ANY, "reward": NDCG}
        if merged not in found:
            found.append(merged)
    return tuple(found)


def load_network(
    run: TrainedRun, weights: Weights, space: ChoiceSpace, registry: Registry
) -> ChoicePolicy:
    """The network of a run with saved weights, ready to be asked.

    Raises:
        DamagedError: the weights cannot be read, or are those of another network.
        ConfigError: it was trained for another space.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    described = weights.folder / _DESCRIBED
    try:
        trained_for = ChoiceSpace.from_dict(json.loads(described.read_text("utf-8"))["space"])
        saved = load_file(weights.folder / _WEIGHTS)
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise DamagedError.of(weights.folder, str(error), "Restore it from a copy") from error
    if trained_for != space:
        raise ConfigError(
            f"the network of '{run.path}' was trained for {trained_for}, and the environment "
            f"shows {space}: the package or the settings have changed since"
        )
    network: Any = registry.get("policy", run.policy).make(space, **run.policy_settings)
    try:
        network.load_state_dict(saved)
    except RuntimeError as error:
        raise DamagedError.of(
            weights.folder, f"it is of another network: {error}", "Restore it from a copy"
        ) from error
    found: ChoicePolicy = network.to(torch.float32).eval()
    return found


def ensure_alike(runs: Sequence[TrainedRun]) -> None:
    """Raise `ConfigError` if runs were not trained on the same collections with one environment."""
    for run in runs[1:]:
        if list(run.settings) != list(runs[0].settings):
            raise ConfigError(
                f"the runs '{runs[0].path}' and '{run.path}' were trained in environments with "
                "other settings; compare each for itself"
            )


def _find_weights(path: Path) -> tuple[tuple[Weights, ...], tuple[str, ...]]:
    """The weights of a run that are whole, oldest first, and what is wrong with the others."""
    found, notes = [], []
    for folder in sorted((path / _CHECKPOINTS).glob(f"{_STEP}*")):
        number = folder.name.removeprefix(_STEP)
        if not number.isdecimal():  # set aside as damaged, or half written
            continue
        try:
            verify_checkpoint(folder)
        except DamagedError as error:
            notes.append(f"left out: {error}")
            continue
        found.append(Weights(int(number), folder / _POLICY))
    final = path / _POLICY / _WEIGHTS
    known = {(one.folder / _WEIGHTS).read_bytes() for one in found}
    if final.is_file() and final.read_bytes() not in known:
        found.append(Weights(None, final.parent))
    return tuple(found), tuple(notes)
