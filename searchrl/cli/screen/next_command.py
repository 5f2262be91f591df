"""What to type next: a command with the plugins, names and settings of the one that just ran.

Owns which flags are carried over and how the lines look. After `play` comes `eval`; after `eval`
comes `train` or, for a run, `ask`; after training come `ask`, `eval` and, from a cold start,
`train --init-from`, which takes over everything else from the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from searchrl.config import RunConfig
from searchrl.engine.rollout.scorers import SEARCH_METRICS
from searchrl.plugins import Entry, Registry

_CARRIED = ("plugin", "config", "env", "protocol", "retriever", "set")
"""Flags that choose the tasks; the other flags belong to one command."""

REWARD = "0.2*format+em"
"""The reward that is suggested where neither the command nor the environment has one."""
_SMALL = "Qwen/Qwen3-0.6B"
"""The model that is suggested where the embedded one was never taught the tasks."""


def show_next(console: Console, command: str) -> None:
    """Print a command as the dim last line, whole whatever the width of the terminal."""
    console.print(Text(f"Next:  {command}", "dim"), soft_wrap=True)


def after_play(values: Mapping[str, Any], config: RunConfig, registry: Registry) -> str:
    """`eval` with the scripted policy where there is one, else `train`."""
    envs = [registry.get("env", task.env.name) for task in config.tasks]
    if all("expert" in env.script_names for env in envs):
        return _line("eval", _carried(values, config.run_dir, "eval"), {"policy": "scripted"})
    return after_eval(values, config, registry)


def after_eval(
    values: Mapping[str, Any], config: RunConfig, registry: Registry, reward: str = REWARD
) -> str:
    """`train` on the same tasks with a model that can learn them.

    `reward` is used where neither the command nor the environment has one.
    """
    wanted: dict[str, Any] = {"reward": values["reward"], "model": values.get("model")}
    envs = [registry.get("env", task.env.name) for task in config.tasks]
    if values["config"]:  # it names reward and model, and perhaps a policy that cannot learn
        wanted["policy"] = "model"
    else:
        if not envs[0].options.get("reward"):
            wanted["reward"] = wanted["reward"] or reward
        wanted["model"] = wanted["model"] or "tiny"
    is_taught = all(map(Entry.policy_for, envs, [task.protocol.name for task in config.tasks]))
    if "tiny" in (wanted["model"], config.model.name) and not is_taught:
        wanted["model"] = _SMALL
    return _line("train", _carried(values, config.run_dir, "train"), wanted)


def after_eval_of_run(values: Mapping[str, Any], run: str, *, takes_questions: bool) -> str:
    """`ask`, with what replaced parts of the run's settings; `train` where there is no question."""
    if not takes_questions:
        return shlex.join(["searchrl", "train", "--init-from", run])
    flags = shlex.join(_words(_carried(values, None, "ask")))
    return f'searchrl ask {shlex.quote(run)} "…" {flags}'.rstrip()


def after_training(run_dir: Path, summary: Mapping[str, Any]) -> list[str]:
    """What to try with a finished run: its folder holds all that these commands need."""
    folder = shlex.quote(str(run_dir))
    figures = [value for value in summary.values() if isinstance(value, Mapping)]
    # Tasks without searches have no metrics of them.
    searches = any(key.rpartition("/")[2] in SEARCH_METRICS for keys in figures for key in keys)
    lines = [summary[name] for name in ("train", "ask") if name in summary]
    lines.append(f"searchrl eval {folder}")
    return [*lines, *([f"searchrl eval {folder} --retriever random"] if searches else [])]


def _carried(values: Mapping[str, Any], run_dir: str | None, command: str) -> dict[str, Any]:
    """The flags that are carried; a folder that the configuration names is taken already."""
    given = {name: values[name] for name in _CARRIED}
    if run_dir and values["config"] and not values.get("run_dir"):
        given["run_dir"] = f"{run_dir}-{command}"
    return given


def _line(command: str, *flags: Mapping[str, Any]) -> str:
    values = {name: value for part in flags for name, value in part.items()}
    return shlex.join(["searchrl", command, *_words(values)])


def _words(flags: Mapping[str, Any]) -> list[str]:
    """Flags as a command line has them; a value of None is left out, a list names one each."""
    words = []
    for name, value in flags.items():
        several: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        for one in several:
            if one is not None:
                words += [f"--{name.replace('_', '-')}", str(one)]
    return words
