"""`--dry-run` of a training command: the plan, and all that can be checked without weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import click
import torch
import yaml

from searchrl.cli.loading import find_permission
from searchrl.config.sections import SCRATCH
from searchrl.engine.memory.forecast import foresee_memory
from searchrl.engine.memory.plan import CUDA_CONTEXT, MemoryPlan, format_bytes, parse_bytes
from searchrl.engine.metrics.evaluation import count_tasks
from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError
from searchrl.programs.setup.judge_cost import foresee_training
from searchrl.programs.setup.planning import Plan, prepare
from searchrl.programs.setup.warnings import (
    ensure_can_learn,
    ensure_whole_distribution,
    few_tasks,
    training_warnings,
)
from searchrl.programs.traces import load_traces
from searchrl.rewards.expression import RewardSchedule
from searchrl.run_folder import choose_folder
from searchrl.screen.lines import print_json, say

_NOT_READ = {"train": ("sft",), "sft": ("algorithm", "optim", "alarms", "max_steps")}
"""Sections of the configuration that a command does not read."""


def ensure_elsewhere(values: Mapping[str, Any]) -> torch.device:
    """The device that `--gpu-memory` plans for; `ConfigError` for options that do not fit it."""
    if not values.get("gpu_memory"):
        raise ConfigError("--gpus plans for GPUs on another machine; add --gpu-memory SIZE")
    if not values["dry_run"]:
        raise ConfigError(
            "--gpu-memory plans for a GPU on another machine, which is not trained on here; add "
            "--dry-run, or leave it out: a run looks at its own GPU"
        )
    if values["device"] not in (None, "auto", "cuda"):
        raise ConfigError(
            f"--gpu-memory plans for a CUDA GPU; leave out --device {values['device']}"
        )
    return torch.device("cuda")


def show_plan(
    plan: Plan, command: Literal["train", "sft"], values: Mapping[str, Any], *, is_shown: bool
) -> None:
    """Print the plan of a run of `command`; no weight is loaded.

    Environments are made, so that wrong names, expressions and data are found. With `--details` the
    settings that the command reads come first, as YAML, all else as comments.
    """
    gpu_memory = values.get("gpu_memory")
    room = None if gpu_memory is None else max(0, parse_bytes(gpu_memory) - CUDA_CONTEXT)
    notes: list[str] = []
    plan, registry = prepare(command, plan, on_note=notes.append, trust=find_permission())
    config = plan.config
    ensure_whole_distribution(config)
    worlds = make_worlds(config, registry)
    algorithm = registry.get("algorithm", config.algorithm.name).make(**config.algorithm.settings)
    num_tasks = count_tasks(worlds, config.eval)
    # Another machine fetches its own weights.
    absence = plan.find_absence() if room is None else ""
    facts: dict[str, Any] = {"model": plan.model.label, "device": str(plan.device)}
    trained = algorithm if command == "train" else None
    outlook: MemoryPlan | str = ""
    if config.model.name != SCRATCH:
        count = values.get("gpus") or 1
        outlook = foresee_memory(
            *(config, plan.model, plan.device, trained),
            room=room,
            num_processes=count,
            presets=plan.presets(),
        )
    if command == "train":
        ensure_can_learn(config, algorithm, worlds)
        warnings = [*training_warnings(plan, worlds)]
        loss = algorithm.resolve(config.algorithm)
        facts |= {
            "judging": "; ".join(foresee_training(config, worlds)),
            "loss": f"{config.algorithm.name}, {loss.describe()}",
            "rollouts_per_step": config.rollout.prompts_per_step * config.rollout.group_size,
            "curriculum": str(Curriculum(worlds)),
        }
    else:
        warnings = [*few_tasks(config, worlds)]
        if config.sft.traces is not None:
            load_traces(config.sft.traces)
    for world in worlds:
        world.close()
    warnings += [absence] if absence else []
    if not is_shown:  # another process of several prints it
        return
    facts |= {"run_dir": str(choose_folder(config)), "num_tasks": num_tasks}
    facts = {name: value for name, value in facts.items() if value != ""}
    facts["fingerprint"] = config.fingerprint
    if values["json"]:
        if outlook:
            facts["memory"] = outlook if isinstance(outlook, str) else outlook.to_dict()
        facts |= {"warnings": warnings, "notes": notes, "config": config.to_dict()}
        print_json(facts)
    else:
        details = values["details"]
        lines = notes
        for task in config.tasks:
            weight = task.weight if isinstance(task.weight, float) else "in stages"
            schedule = RewardSchedule.parse(task.reward)
            lines.append(f"task: {task.env.name}, weight {weight}, reward {schedule}")
        facts["num_tasks"] = ", ".join(f"{split}: {count:,}" for split, count in num_tasks.items())
        lines += [f"{name}: {value}" for name, value in facts.items()]
        if details:
            settings = {k: v for k, v in config.to_dict().items() if k not in _NOT_READ[command]}
            say(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).rstrip())
            for part in outlook.parts if isinstance(outlook, MemoryPlan) else ():
                size = format_bytes(part.num_bytes)
                lines.append(f"memory, {part.name}: {size} ({part.phase}: {part.why})")
        more = "" if details else "; --details shows every setting"
        lines.append(f"dry run: nothing was loaded or written{more}")
        lines += ["warning: " + warning.replace("\n", " ") for warning in warnings]
        if outlook:
            lines.append(f"memory {outlook}" if isinstance(outlook, str) else outlook.verdict)
        for line in lines:
            say(f"{'# ' if details else ''}{line}")
    if isinstance(outlook, MemoryPlan) and not outlook.has_remedy:  # the verdict has said so
        click.get_current_context().exit(1)
