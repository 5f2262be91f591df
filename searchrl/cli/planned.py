"""The plan of a training command: what `--dry-run` shows, and the checks on flags around it.

Owns the checks before any weight is loaded: names, expressions, data files, the run folder.
Imports torch (a plan names a device), so commands import it when they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import yaml

from searchrl.alarms.watch import find_alarms
from searchrl.cli.json_output import print_json
from searchrl.cli.lines import say
from searchrl.cli.loading import load_registry
from searchrl.config import RunConfig
from searchrl.config.policy import MODEL, is_registered
from searchrl.config.sections import SCRATCH
from searchrl.engine.episodes.curriculum import Curriculum
from searchrl.engine.episodes.world import make_worlds
from searchrl.engine.figures.evaluation import count_tasks
from searchrl.engine.memory.plan import CUDA_CONTEXT, format_bytes, parse_bytes
from searchrl.engine.memory.watch import Outlook, foresee_memory
from searchrl.engine.model.loading import NO_SCRATCH
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.setup.doubts import (
    ensure_can_learn,
    few_tasks,
    few_validation_tasks,
    tiny_abroad,
)
from searchrl.programs.setup.judging import foresee_training
from searchrl.programs.setup.planning import Plan, ensure_whole_distribution
from searchrl.programs.traces import load_traces
from searchrl.run_folder import choose_folder

_NOT_READ = {"train": ("sft",), "sft": ("algorithm", "optim", "alarms", "max_steps")}
"""Sections of the configuration that a command does not read."""


def ensure_model_policy(config: RunConfig, command: str) -> None:
    """Refuse a scripted policy where there is something to train, and a new one outside `sft`.

    Raises `ConfigError` if `policy` is neither `model` nor a network that `command` can train, or
    if it cannot begin with the model.
    """
    if command in ("train", "bench", "doctor") and is_registered(config.policy.name):
        return
    if is_registered(config.policy.name):
        raise ConfigError(
            f"policy = '{config.policy.name}': `searchrl {command}` trains language models, and "
            "this is a network of choices; train it with: searchrl train --policy "
            f"{config.policy.name}"
        )
    if config.policy.name != MODEL:
        raise ConfigError(
            f"policy = '{config.policy.name}': `searchrl {command}` trains a model; other policies "
            "have no weights here. Use `searchrl eval --policy scripted` to see how they do"
        )
    if config.model.name == SCRATCH and config.init_from is None and command != "sft":
        raise ConfigError(NO_SCRATCH)


def ensure_elsewhere(values: Mapping[str, Any]) -> torch.device:
    """The device that `--gpu-memory` plans for, on another machine.

    Raises `ConfigError` if the flag stands without `--dry-run`, or beside another device.
    """
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
    plan: Plan,
    command: Literal["train", "sft"],
    *,
    is_json: bool,
    details: bool,
    gpu_memory: str | None = None,
) -> None:
    """Print what a run of `command` would do, and stop before it loads any weight.

    Builds the environments, so that wrong names, expressions and data are found. The memory plan
    is that of `train`; `sft` has none. Warnings and the verdict on memory are the last lines. With
    `details` the settings that the command reads stand before, as YAML, with all else as comments.
    `gpu_memory` is the size of a GPU on another machine.
    """
    with_memory = command == "train"
    size = None if gpu_memory is None else parse_bytes(gpu_memory)
    registry = load_registry(plan.config)
    plan = plan.settled(registry)
    facts = _facts(plan, registry, has_rewards=with_memory, is_elsewhere=size is not None)
    has_reference = facts.pop("has_reference")
    outlook: Outlook | str = ""
    if with_memory and plan.model is not None:
        outlook = foresee_memory(
            plan.config,
            plan.model,
            plan.device,
            has_reference=has_reference,
            room=None if size is None else max(0, size - CUDA_CONTEXT),
        )
    warnings = facts["warnings"]
    if is_json:
        if outlook:
            facts["memory"] = outlook if isinstance(outlook, str) else outlook.to_dict()
        print_json({**facts, "notes": list(plan.notes), "config": plan.config.to_dict()})
        return
    del facts["warnings"]
    mark = "# " if details else ""
    if details:
        settings = {k: v for k, v in plan.config.to_dict().items() if k not in _NOT_READ[command]}
        say(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).rstrip())
    for note in plan.notes:
        say(f"{mark}{note}")
    for task in plan.config.tasks:
        weight, reward = (
            part if isinstance(part, str | float) else "in stages"
            for part in (task.weight, task.reward)
        )
        say(f"{mark}task: {task.env.name}, weight {weight}, reward {reward}")
    for name, value in facts.items():
        text = ", ".join(f"{k}: {v:,}" for k, v in value.items()) if name == "num_tasks" else value
        say(f"{mark}{name}: {text}")
    if details and isinstance(outlook, Outlook):
        say("# memory:")
        for part in outlook.plan.parts:
            size_of = format_bytes(part.num_bytes)
            say(f"#   {part.name}: {size_of} ({part.phase}: {part.why})")
        if outlook.rehearsal:
            say(f"# rehearsal: {outlook.rehearsal}")
    more = "" if details else "; --details shows every setting"
    say(f"{mark}dry run: nothing was loaded or written{more}")
    for warning in warnings:
        say(f"{mark}warning: " + warning.replace("\n", " "))
    if outlook:
        verdict = f"memory {outlook}" if isinstance(outlook, str) else outlook.verdict
        say(f"{mark}{verdict}")


def _facts(
    plan: Plan, registry: Registry, *, has_rewards: bool, is_elsewhere: bool
) -> dict[str, Any]:
    config = plan.config
    ensure_whole_distribution(config)
    worlds = make_worlds(config, registry)
    algorithm = registry.get("algorithm", config.algorithm.name).make(**config.algorithm.settings)
    for tracker in config.log.trackers:
        registry.get("tracker", tracker.name).ensure_settings(tracker.settings)
    find_alarms(registry, config.alarms.watch)
    num_tasks = count_tasks(worlds, config.eval)
    doubts = list(few_tasks(config, worlds))
    if not is_elsewhere:  # another machine fetches its own weights
        doubts.append(plan.find_absence())
    if has_rewards:
        ensure_can_learn(config, algorithm, worlds)
        doubts = [*tiny_abroad(plan, worlds), *doubts, *few_validation_tasks(config, worlds)]
    elif config.sft.traces is not None:
        load_traces(config.sft.traces)
    judging = list(foresee_training(config, worlds)) if has_rewards else []
    stages = Curriculum(worlds) if has_rewards else ""
    for world in worlds:
        world.close()
    loss = algorithm.resolve(config.algorithm)
    judged = {"judging": "; ".join(judging)} if judging else {}
    learning = {
        "loss": f"{config.algorithm.name}, {loss.describe()}",
        "rollouts_per_step": config.rollout.prompts_per_step * config.rollout.group_size,
    }
    return {
        **judged,
        "warnings": [doubt for doubt in doubts if doubt],
        "model": plan.label,
        "device": str(plan.device),
        "run_dir": str(choose_folder(config)),
        **(learning if has_rewards else {}),
        **({"curriculum": str(stages)} if str(stages) else {}),
        "num_tasks": num_tasks,
        "fingerprint": config.fingerprint,
        "has_reference": loss.beta > 0,
    }
