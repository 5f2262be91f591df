"""The run of a training: its settings, its curves and its checkpoints.

    metrics.jsonl                      a line for each step
    checkpoints/step_000040.safetensors   weights, state of Adam, settings; nothing is pickled
    tensorboard/                       if TensorBoard is installed

A run that was killed goes on from its newest checkpoint, and ends with the same weights and figures
as one that was not. The order of a step is in `loop`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from searchrl import (
    ConfigError,
    DamagedError,
    RunFolderError,
    load_yaml,
    parse_sets,
    replace_file,
)
from searchrl_control.environment.settings import ensure_settings
from searchrl_control.training.loop import Settings, Training
from searchrl_control.training.networks import Network, Space

METRICS, CHECKPOINTS, SUFFIX = "metrics.jsonl", "checkpoints", ".safetensors"
_NETWORK, _ADAM, _MADE = "network.", "adam.", "training"
_SHOWN = ("reward", "ndcg", "entropy", "kl", "least_action_p", "episodes_per_s")

Say = Callable[[str], None]


class Run(NamedTuple):
    """A run: its settings, the space of its network, and its checkpoints by step."""

    path: Path
    settings: Settings
    space: Mapping[str, Any]
    checkpoints: dict[int, Path]


def build_settings(*layers: Mapping[str, Any]) -> Settings:
    """Settings of layers, later ones win. Raises `ConfigError` that lists what is wrong."""
    merged: dict[str, Any] = Settings().model_dump()
    for layer in layers:
        network = layer.get("network", {})
        named = {"name": network} if isinstance(network, str) else network
        merged |= {**layer, "network": {**merged["network"], **named}}
    return ensure_settings(Settings, merged, "the configuration")


def read_assignments(
    assignments: Sequence[str], *, is_training: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the environment in `env.K=V`, and the others, which only a training has."""
    others = parse_sets(assignments)
    of_env = others.pop("env", {})
    if not isinstance(of_env, dict) or (others and not is_training):
        raise ConfigError(
            f"--set {next(iter(others), 'env')}…: expected a setting of the environment, such as "
            "--set env.actions=heads"
        )
    return of_env, others


def read_training(
    config: Path | None, names: Sequence[str], assignments: Sequence[str]
) -> Settings:
    """The settings of a training: those of a file, then collections by name, then assignments."""
    changes, others = read_assignments(assignments, is_training=True)
    file = load_yaml(config) if config is not None else {}
    named = {"envs": [{"collection": name} for name in dict.fromkeys(names)]} if names else {}
    return change_envs(build_settings(file, named, others), changes, f"'{config}'")


def change_envs(settings: Settings, changes: Mapping[str, Any], owner: str) -> Settings:
    """Settings with changes to all their environments.

    Raises `ConfigError`: an environment asks a server that only the settings of `owner` name.
    """
    for env in settings.envs:
        if (url := env.get("url")) and "url" not in changes:
            raise ConfigError(
                f"{owner} asks the server {url} for other words. A run may be "
                "somebody else's, so say that you mean it: --set env.url=ADDRESS"
            )
    return settings.model_copy(update={"envs": [{**env, **changes} for env in settings.envs]})


def ensure_new(folder: Path, way_on: str) -> None:
    """Raise `RunFolderError` if there is anything but an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"'{folder}' is not empty; {way_on}")


def begin_run(folder: Path, settings: Settings) -> Training:
    """A new training in a new folder."""
    way_on = f"go on with: searchrl control train --resume {folder}, or name a new folder"
    ensure_new(folder, way_on)
    training = Training(settings)
    (folder / CHECKPOINTS).mkdir(parents=True)
    return training


def reopen_run(run: Run, settings: Settings) -> Training:
    """The training of a run as it was at its newest checkpoint."""
    training = Training(settings)
    training.step = max(run.checkpoints)
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in load_weights(run, training.step, training.network).items():
        if name.startswith(_ADAM):
            number, key = name.removeprefix(_ADAM).split(".")
            state.setdefault(int(number), {})[key] = tensor
    training.optimizer.load_state_dict({**training.optimizer.state_dict(), "state": state})
    # What came after it is done again.
    lines = (run.path / METRICS).read_bytes().splitlines(keepends=True)[: training.step]
    replace_file(run.path / METRICS, b"".join(lines))
    return training


def run_training(training: Training, folder: Path, say: Say) -> None:
    """Take the steps that are left, and write a checkpoint where one is due."""
    settings: Settings = training.settings
    board: Any = None
    try:
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(str(folder / "tensorboard"), purge_step=training.step + 1)
    except ImportError:
        pass  # TensorBoard is not installed
    if training.step == 0:
        save_checkpoint(training, folder)
    with (folder / METRICS).open("a", encoding="utf-8") as metrics:
        while training.step < settings.max_steps:
            values = training.take_step()
            step = training.step
            metrics.write(json.dumps({"step": step, **values}) + "\n")
            metrics.flush()
            for name, value in values.items() if board is not None else ():
                board.add_scalar(name, value, step)
            figures = "  ".join(f"{name} {values[name]:.3g}" for name in _SHOWN if name in values)
            used = values.get("greedy_actions", 3)
            few = f"  greedy play uses {used:.0f} of its actions only" if used < 3 else ""
            say(f"step {step}/{settings.max_steps}  {figures}{few}")
            if step % settings.checkpoint_every == 0 or step == settings.max_steps:
                os.fsync(metrics.fileno())  # a checkpoint never stands before its curves
                save_checkpoint(training, folder)
    if board is not None:
        board.close()


def save_checkpoint(training: Training, folder: Path) -> None:
    """Write weights, optimiser and what they are of into one file, whole or not at all."""
    tensors = {_NETWORK + k: v.contiguous() for k, v in training.network.state_dict().items()}
    for number, state in training.optimizer.state_dict()["state"].items():
        tensors |= {f"{_ADAM}{number}.{key}": value for key, value in state.items()}
    made = {"settings": training.settings.model_dump(), "space": asdict(training.space)}
    data = save(tensors, {_MADE: json.dumps(made)})
    replace_file(folder / CHECKPOINTS / f"step_{training.step:06d}{SUFFIX}", data)


def read_run(path: Path) -> Run:
    """Read a run; `RunFolderError` if there is none, `DamagedError` for its newest checkpoint."""
    files = (path / CHECKPOINTS).glob(f"step_*{SUFFIX}")
    by_step = {int(file.stem.removeprefix("step_")): file for file in sorted(files)}
    if not by_step:
        raise RunFolderError(
            f"'{path}' is no run of searchrl control train: it has no checkpoint. A model that "
            f"plays in words is measured by: searchrl eval {path}"
        )
    newest = by_step[max(by_step)]
    try:
        with safe_open(newest, "pt") as file:
            made = json.loads(file.metadata()[_MADE])
        settings, space = Settings.model_validate(made["settings"]), dict(made["space"])
    except (OSError, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise _damaged(newest, error) from error
    return Run(path, settings, space, by_step)


def load_weights(run: Run, step: int, network: nn.Module) -> dict[str, Tensor]:
    """Give a network the weights of a checkpoint; returns all tensors of the file."""
    path = run.checkpoints[step]
    try:
        tensors: dict[str, Tensor] = load_file(path)
        network.load_state_dict(
            {k.removeprefix(_NETWORK): v for k, v in tensors.items() if k.startswith(_NETWORK)}
        )
    except (OSError, SafetensorError, RuntimeError) as error:
        raise _damaged(path, error) from error
    return tensors


def load_network(run: Run, step: int, space: Space) -> nn.Module:
    """The network of a run as it was at a step; `ConfigError` if its space is another one."""
    if run.space != json.loads(json.dumps(asdict(space))):
        raise ConfigError(
            f"the network of '{run.path}' was trained for {run.space}, and the environment "
            f"shows {space}: the package or the settings have changed since"
        )
    network = Network(space, run.settings.network)
    load_weights(run, step, network)
    return network.eval()


def _damaged(path: Path, error: Exception) -> DamagedError:
    return DamagedError.of(path, str(error), "Restore it from a copy, remove it, or train again")
