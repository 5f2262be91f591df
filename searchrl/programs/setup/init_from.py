"""Settings that `--init-from RUN` takes over besides weights.

They are the run's plugins, its tasks (environment, protocol, retriever, reward, with their
settings) and what it says of the model and of token limits. They lie below everything that is
written now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl.config import build_config, load_preset
from searchrl.config.curriculum import alone
from searchrl.config.packaged import is_packaged
from searchrl.config.sections import SCRATCH
from searchrl.run_folder import Run, looks_like_run

_OWN = {"model": ("name", "scratch")}
"""Keys that belong to the run alone: its weights are what `init_from` names."""

_LIMITS = ("max_turn_tokens", "max_observation_tokens", "max_total_tokens")


def find_source(init_from: str | None) -> Run | None:
    """The run whose weights `init_from` names: its folder, its policy or a checkpoint of it."""
    if init_from is None:
        return None
    folder = Path(init_from).absolute()
    for above in (folder, *folder.parents[:3]):
        if looks_like_run(above):
            return Run.open(above)
    return None


def settings_of_source(source: Run, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that follow the weights of a run; the env named in `layers` picks its tasks."""
    config = source.config
    there = config.to_dict()
    # That of a package is not about the model: what it says of the tasks comes with the tasks.
    preset = None if config.preset is None or is_packaged(config.preset) else config.preset
    usual = build_config(load_preset(preset) if preset else {}).to_dict()
    # A model made from scratch had no preset of its own: what it is now decides.
    has_preset = preset is not None and config.model.name != SCRATCH
    taken: dict[str, Any] = {"preset": preset} if has_preset else {}
    for section, keys in (("model", tuple(there["model"])), ("rollout", _LIMITS)):
        changed = {
            key: there[section][key]
            for key in keys
            if key not in _OWN.get(section, ()) and there[section][key] != usual[section][key]
        }
        if changed:
            taken[section] = changed
    if tasks := list(_fitting_tasks(there["tasks"], layers)):
        taken["tasks"] = tasks
    return taken


def join_plugins(source: Run, named: Sequence[str]) -> list[str]:
    """The plugins of a run and those named now; a file that is named anew replaces the old one."""
    stems = {Path(one).stem for one in named}
    old = [one for one in source.config.plugins if Path(one).stem not in stems]
    return list(dict.fromkeys([*old, *named]))


def _fitting_tasks(
    tasks: Sequence[Mapping[str, Any]], layers: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The run's tasks: all if no env is named now, that of the env if its name is given alone."""
    if any("tasks" in layer for layer in layers):
        written = [layer["tasks"] for layer in layers if "tasks" in layer]
        if any(not isinstance(one, Mapping) for one in written):
            return  # a list of tasks is whole; a mapping addresses single keys of them
    envs = [layer["env"] for layer in layers if "env" in layer]
    if any(isinstance(env, Mapping) and "name" in env for env in envs):
        return  # a configuration that describes its environment
    names = [env for env in envs if isinstance(env, str)]
    fitting = [t for t in tasks if not names or t["env"]["name"] == names[-1]]
    yield from fitting if len(fitting) == len(tasks) else map(alone, fitting)


def describe_taken(source: Run, taken: Mapping[str, Any], plugins: Sequence[str]) -> str:
    """One line for a person: what was taken over, and from where."""
    parts = [
        f"env {task['env']['name']}, reward {task['reward']}" for task in taken.get("tasks", ())
    ]
    parts += [one for one in source.config.plugins if one in plugins]
    parts += [f"{s}.{k}" for s in ("model", "rollout") for k in taken.get(s, ())]
    return f"taken over from {source.path}: {', '.join(parts)}" if parts else ""
