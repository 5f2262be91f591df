"""From settings to a resolved plan: device, weights, preset, one config.

The model decides the preset, and the preset lies under everything the user wrote, so the model is
found first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from searchrl.config import RunConfig, build_config, load_preset, preset_names
from searchrl.config.endpoint import MODEL
from searchrl.config.packaged import EMBEDDED, find_packaged, is_packaged
from searchrl.config.sections import SCRATCH
from searchrl.engine.model.hub import find_absence
from searchrl.engine.model.loading import (
    NO_SCRATCH,
    ResolvedModel,
    load_policy,
    resolve_device,
    resolve_model,
)
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.errors import ConfigError, PluginError, PolicyError, RunFolderError
from searchrl.plugins import Registry
from searchrl.programs.setup.init_from import (
    describe_taken,
    find_source,
    join_plugins,
    settings_of_source,
)
from searchrl.programs.setup.objects import Objects
from searchrl.run_folder import Run, find_damage, newest_checkpoint, read_state
from searchrl.trust.permission import Permission

TINY = "tiny"
TINY_PRESET = "tiny"
LARGE_PRESET = "qwen3_4b_lora"


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved run: the config with its preset merged in, the weights and device it names.

    `config.model.name` is the model `auto` became: stored, it means the same wherever it is read.
    """

    config: RunConfig
    model: ResolvedModel
    device: torch.device
    taken_over: str = ""
    """Settings that were taken over from the run that `init_from` names, in words."""
    named: frozenset[str] = frozenset()
    """The texts that somebody wrote here, not that run."""
    read_from: Path | None = None
    """The run folder that the settings, or some of them, were read from."""
    layers: tuple[Mapping[str, Any], ...] = ()
    """The settings that somebody wrote, below which a preset lies."""

    @classmethod
    def of(cls, config: RunConfig, elsewhere: torch.device | None = None) -> Plan:
        """The plan of a config as it is: only its weights and device are looked for.

        `elsewhere` is a device of another machine. PolicyError for a missing device or folder.
        """
        device = resolve_device(config.device) if elsewhere is None else elsewhere
        model = resolve_model(config.model.name, device, config.init_from)
        return cls(config, model, device, named=Permission.of(config.to_dict()).named)

    def settled(self, registry: Registry) -> Plan:
        """The plan with what only plugins know: what `auto` is for each task, and what `tiny` is.

        `tiny` is the policy that the environment of the first task brings for its protocol, and
        SearchRL's own where it brings none. Where `init_from` has the weights, nothing is chosen.
        A plan that is settled stays as it is.
        """
        config = name_defaults(self.config, registry)
        task = config.tasks[0]
        env = registry.get("env", task.env.name)
        name = env.policy_for(task.protocol.name) or EMBEDDED
        if config.model.name != TINY or config.init_from is not None or name == EMBEDDED:
            return replace(self, config=config)
        model = resolve_model(name, self.device) if find_packaged(name) else None
        if model is None or not model.is_tiny:
            raise PluginError(
                f"{env} brings the policy '{name}' for protocol '{task.protocol.name}', and that "
                "is no small model in its package, such as `searchrl sft --model scratch` makes; "
                "until its author puts one there, use --model with another model"
            )
        note = (
            f"model: tiny → the policy that env '{env.title}' ({env.owner}) brings for protocol "
            f"'{task.protocol.name}': {model.label}"
        )
        model = model._replace(notes=(*self.model.notes, *model.notes, note))
        decided = config.model.model_copy(update={"name": name})
        return replace(self, config=config.model_copy(update={"model": decided}), model=model)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user about what was decided."""
        return tuple(note for note in (*self.model.notes, self.taken_over) if note)

    def presets(self) -> Iterator[tuple[str, RunConfig]]:
        """The other ready presets for a model of this kind, and the config with each."""
        for name in preset_names() if self.layers else ():
            if (name == TINY_PRESET) == self.model.is_tiny and name != self.config.preset:
                chosen = {"preset": name, "model": {"name": self.config.model.name}}
                with suppress(ConfigError):  # it does not go with what the user wrote
                    yield name, build_config(load_preset(name), *self.layers, chosen)

    def find_absence(self) -> str:
        """Why the weights cannot be had on this machine, found out in a moment; "" if they can."""
        return find_absence(self.model.path) if self.model.is_hub_id else ""

    def ensure_weights(self) -> None:
        """Raise `PolicyError` if the weights are not here and cannot be fetched."""
        if absence := self.find_absence():
            raise PolicyError(absence)

    def load_policy(self, *, trainable: bool, is_to_shard: bool = False) -> Policy:
        """Load the language model; PolicyError if the weights cannot be had."""
        set_threads(self.config)
        # Everything random in sampling has its own keys; this seeds a new adapter's weights.
        torch.manual_seed(self.config.seed)
        return load_policy(
            self.config.model, self.model, self.device, trainable=trainable, is_to_shard=is_to_shard
        )


def plan_run(*layers: Mapping[str, Any], elsewhere: torch.device | None = None) -> Plan:
    """Resolve settings layers (later wins) into a plan; `elsewhere` is that of `Plan.of`.

    Below them lies what follows the weights of the run that `init_from` names.
    """
    deciding, named, taken_over = _find_deciding(*layers), Permission.of(*layers).named, ""
    if source := find_source(deciding.init_from):
        settings = settings_of_source(source, layers)
        plugins = join_plugins(source, deciding.plugins)
        taken_over = describe_taken(source, settings, plugins)
        layers = (settings, *layers, {"plugins": plugins})
        deciding = _find_deciding(*layers)
    if deciding.preset:
        deciding = _find_deciding(load_preset(deciding.preset), *layers)  # it may name the model
    device = resolve_device(deciding.device) if elsewhere is None else elsewhere
    model = resolve_model(deciding.model.name, device, deciding.init_from)
    of_policy = TINY_PRESET if model.is_tiny else LARGE_PRESET
    preset = deciding.preset or of_policy
    # That of a package is not about a policy, so it does not replace the policy's.
    presets = [*map(load_preset, [of_policy, preset] if is_packaged(preset) else [preset])]
    if not deciding.engine.is_sampled_here:  # its log-probs are not quite the trainer's
        presets.insert(0, {"algorithm": {"name": "tis"}})
    decided: dict[str, Any] = {"preset": preset}
    if deciding.model.name == "auto" and deciding.init_from is None:
        # With init_from the folder decides, and later it decides the same.
        decided["model"] = {"name": TINY if model.is_tiny else model.path}
    config = build_config(*presets, *layers, decided)
    return Plan(config, model, device, taken_over, named, layers=layers)


def _find_deciding(*layers: Mapping[str, Any]) -> RunConfig:
    """A config of the keys alone that decide what lies below all others."""
    deciding = []
    for layer in layers:
        keys = {"preset", "init_from", "device", "plugins", "engine"} & layer.keys()
        model = layer.get("model")
        name = model.get("name") if isinstance(model, Mapping) else model
        named = {} if name is None else {"model": {"name": name}}
        deciding.append({key: layer[key] for key in keys} | named)
    try:
        return build_config(*deciding)
    except ConfigError:
        build_config(*layers)  # which names all that is wrong
        raise


def prepare(
    program: str,
    config: RunConfig | Plan | Mapping[str, Any] | None,
    *,
    on_note: Callable[[str], None],
    resume: str | Path | None = None,
    registry: Registry | None = None,
    trust: bool | Permission = False,
    objects: Objects | None = None,
) -> tuple[Plan, Registry]:
    """The settled plan (`Plan.settled`) and the plugins of a program that trains.

    `config` is not read where a run is resumed. `registry` is by default that of the installed
    plugins, those of the plan and `objects`; `trust` allows what a run folder names.
    RunFolderError if `resume` holds no run of this program with a checkpoint.
    """
    if resume is not None:
        opened = Run.open(resume)
        newest = newest_checkpoint(opened.path, deep=False).folder
        made_by = "sft" if "demos" in read_state(newest) else "train"
        if made_by != program:
            raise RunFolderError(
                f"'{resume}' is a run of `searchrl {made_by}`; continue it with: searchrl "
                f"{made_by} --resume {resume}, or start from its weights with --init-from {resume}"
            )
        plan = replace(Plan.of(opened.config), named=frozenset())
    elif isinstance(config, Plan):
        plan = config
    else:
        plan = Plan.of(config) if isinstance(config, RunConfig) else plan_run(config or {})
    if plan.config.policy != MODEL:
        raise ConfigError(
            f"policy = '{plan.config.policy}': `searchrl {program}` trains a model; other policies "
            "have no weights here. Use `searchrl eval --policy scripted` to see how they do"
        )
    if plan.config.model.name == SCRATCH and plan.config.init_from is None and program != "sft":
        raise ConfigError(NO_SCRATCH)
    if registry is None:
        source = find_source(plan.config.init_from)
        begun = resume or plan.read_from or (source.path if source else None)
        if not isinstance(trust, Permission):
            trust = Permission(plan.named, is_given=trust)
        registry = trust.load(plan.config, begun, objects)
        for text in (*registry.news, *(find_damage(Path(begun)) if begun else ())):
            on_note(text)
    for part in plan.config.parts():
        if part.kind in ("tracker", "alarm"):  # others are made before anything is written
            registry.get(part.kind, part.name).ensure_settings(part.settings)
    if resume is None:  # what `auto` and `tiny` mean to a resumed run was decided when it began
        plan = plan.settled(registry)
    for note in plan.notes:
        on_note(note)
    return plan, registry


def set_threads(config: RunConfig) -> None:
    """Give torch the CPU threads the config asks for. How a sum is split decides its last bits."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
