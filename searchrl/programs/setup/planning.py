"""From what a user said to a resolved plan: device, weights, preset, one config.

Owns the order in which a run is decided, once: a `Plan` carries what was found to everything that
needs it. The model decides the preset, and the preset lies under everything the user wrote, so the
model is found first. Callers: every program with a model, and `--dry-run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from searchrl.config import RunConfig, build_config, load_preset
from searchrl.config.packaged import EMBEDDED, find_packaged, is_packaged
from searchrl.engine.model.hub import find_absence
from searchrl.engine.model.loading import ResolvedModel, load_policy, resolve_device, resolve_model
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.world import TaskWorld, name_defaults
from searchrl.errors import ConfigError, PluginError, PolicyError, RunFolderError
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.provenance import read_records
from searchrl.programs.setup.carrying import (
    carried_settings,
    describe_carried,
    find_source,
    join_plugins,
    task_flags,
)
from searchrl.run_folder import Run, find_damage, newest_checkpoint, read_state
from searchrl.trust.permission import Permission

TINY = "tiny"
SMALL_PARAMETERS = 1_700_000_000
"""Below it, models rarely write tags that they know only from an instruction."""
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
    carried: str = ""
    """What was taken over from the run that `init_from` names, in words."""
    named: frozenset[str] = frozenset()
    """The texts that somebody wrote here, not that run."""

    @classmethod
    def of(cls, config: RunConfig, elsewhere: torch.device | None = None) -> Plan:
        """The plan of a config as it is: only its weights and device are looked for.

        `elsewhere` is a device of another machine, for a plan that is not run here.

        Raises:
            PolicyError: for a missing device or folder.
        """
        device = resolve_device(config.device) if elsewhere is None else elsewhere
        model = resolve_model(config.model.name, device, config.init_from)
        return cls(config, model, device, named=Permission.of(config.to_dict()).named)

    def settled(self, registry: Registry) -> Plan:
        """The plan with what only plugins know: what `auto` is for each task, and what `tiny` is.

        `tiny` is the policy that the environment of the first task brings for its protocol, and
        SearchRL's own where it brings none. Where `init_from` has the weights, nothing is chosen.
        A plan that is settled stays as it is.

        Raises:
            UnknownNameError: for an environment that nobody registers.
            PluginError: if what it brings is not there, or no small model of ours.
        """
        config = name_defaults(self.config, registry)
        task = config.tasks[0]
        env = registry.get("env", task.env.name)
        name = env.policy_for(task.protocol.name) or EMBEDDED
        if config.model.name != TINY or config.init_from is not None or name == EMBEDDED:
            return replace(self, config=config)
        what = f"{env} brings the policy '{name}' for protocol '{task.protocol.name}'"
        if find_packaged(name) is None:
            raise PluginError(
                f"{what}, and there is no such folder in that package. Its author puts the files "
                "of a policy/ there; until then, use --model with another model"
            )
        model = resolve_model(name, self.device)
        if not model.is_tiny:
            raise PluginError(
                f"{what}, which is no small model: its config.json does not say "
                '"searchrl_tiny": true, as those of `searchrl sft --model scratch` do'
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
        """What the user should be told of what was decided."""
        return tuple(note for note in (*self.model.notes, self.carried) if note)

    def find_absence(self) -> str:
        """Why the weights cannot be had on this machine, found out in a moment; "" if they can."""
        return find_absence(self.model.path) if self.model.is_hub_id else ""

    def ensure_weights(self) -> None:
        """Raise `PolicyError` if the weights are not here and cannot be fetched."""
        if absence := self.find_absence():
            raise PolicyError(absence)

    def load_policy(self, *, trainable: bool) -> Policy:
        """Load the language model.

        Raises:
            PolicyError: if the weights cannot be had; says what to do.
        """
        set_threads(self.config)
        # Everything random in sampling has its own keys; this seeds a new adapter's weights.
        torch.manual_seed(self.config.seed)
        return load_policy(self.config.model, self.model, self.device, trainable=trainable)


def plan_run(*layers: Mapping[str, Any], elsewhere: torch.device | None = None) -> Plan:
    """Resolve settings layers (later wins) into a plan; `elsewhere` is that of `Plan.of`.

    Below them lies what follows the weights of the run that `init_from` names.

    Raises:
        ConfigError, PolicyError: for wrong keys, unknown presets, missing devices or folders.
    """
    asked = build_config(*layers)
    carried, named = "", Permission.of(*layers).named
    if source := find_source(asked):
        settings, plugins = carried_settings(asked, layers), join_plugins(source, asked)
        carried = describe_carried(source, settings, plugins)
        layers = (settings, *layers, {"plugins": plugins})
        asked = build_config(*layers)
    if asked.preset:
        # It may name the model.
        asked = build_config(load_preset(asked.preset), *layers)
    plan = Plan.of(asked, elsewhere)
    model = plan.model
    of_policy = TINY_PRESET if model.is_tiny else LARGE_PRESET
    preset = asked.preset or of_policy
    # That of a package is not about a policy, so it does not replace the policy's.
    presets = [of_policy, preset] if is_packaged(preset) else [preset]
    decided: dict[str, Any] = {"preset": preset}
    if asked.model.name == "auto" and asked.init_from is None:
        # With init_from the folder decides, and later it decides the same.
        decided["model"] = {"name": TINY if model.is_tiny else model.path}
    config = build_config(*map(load_preset, presets), *layers, decided)
    return replace(plan, config=config, carried=carried, named=named)


def find_plan(
    program: Literal["train", "sft"],
    config: RunConfig | Plan | Mapping[str, Any] | None,
    resume: str | Path | None,
    registry: Registry | None,
    on_note: Callable[[str], None],
    *,
    trust: bool = False,
) -> tuple[Plan, Registry]:
    """The plan of a program: a resumed run's, a finished one as it is, or settings planned now.

    With it comes the registry: the one given, or the plugins of the plan; of those a resumed run
    relies on, it is noted which have changed. The plan is settled (`Plan.settled`). With `trust`,
    code that a run folder names may run.

    Raises:
        ConfigError, PolicyError: see `plan_run`.
        RunFolderError: if `resume` holds no run of this program with a checkpoint.
        PluginError: see `load_plugins`.
    """
    if resume is not None:
        run = Run.open(resume)
        newest = newest_checkpoint(run.path, deep=False).folder
        made_by = "sft" if "demos" in read_state(newest) else "train"
        if made_by != program:
            raise RunFolderError(
                f"'{resume}' is a run of `searchrl {made_by}`; continue it with: searchrl "
                f"{made_by} --resume {resume}, or start from its weights with --init-from {resume}"
            )
        plan = Plan.of(run.config)
    elif isinstance(config, Plan):
        plan = config
    else:
        plan = Plan.of(config) if isinstance(config, RunConfig) else plan_run(config or {})
    if registry is None:
        source = find_source(plan.config)
        begun = resume if resume is not None else source.path if source is not None else None
        settings = plan.config.to_dict()
        named = frozenset[str]() if resume is not None else plan.named
        pinned = Permission(named, is_given=trust).ensure(plan.config, begun)
        registry = load_plugins(
            plan.config.plugins,
            strict=plan.config.strict_plugins,
            must_load=True,
            recorded=read_records(begun, settings),
            pinned=pinned,
        )
        for text in (*find_damage(Path(begun)), *registry.changes) if begun else registry.changes:
            on_note(text)
    if resume is not None:
        # What its `tiny` means was decided when it began.
        settled = replace(plan, config=name_defaults(plan.config, registry))
    else:
        settled = plan.settled(registry)
    told = plan.notes if plan is config else ()
    for note in settled.notes:
        if note not in told:
            on_note(note)
    return settled, registry


def ensure_whole_distribution(config: RunConfig) -> None:
    """Refuse to train on samples of a cut distribution unless that is asked for.

    Raises:
        ConfigError: naming what cuts it, and what to do.
    """
    sampling = config.sampling
    if not sampling.is_truncated or sampling.allow_truncated:
        return
    cut = ", ".join(
        f"{name}={value:g}"
        for name, value, all_of_it in (
            ("top_k", sampling.top_k, 0),
            ("top_p", sampling.top_p, 1.0),
            ("min_p", sampling.min_p, 0.0),
        )
        if value != all_of_it
    )
    raise ConfigError(
        f"sampling.{cut} cuts what training may draw: the ratio is then too large by the "
        "probability left out of each draw. Keep it for `searchrl eval`; or, to train on it all "
        "the same, --set sampling.allow_truncated=true (the metric log_kept_mass, in nats per "
        "token, says how biased the ratio is)"
    )


def set_threads(config: RunConfig) -> None:
    """Give torch the CPU threads the config asks for. How a sum is split decides its last bits."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)


def first_advice(plan: Plan, num_parameters: int, world: TaskWorld) -> str | None:
    """A warning before an untaught small model is trained with rewards; None if none is due.

    `world` is the task that it is best taught first.
    """
    config, model = plan.config, plan.model
    if model.is_tiny or model.adapter_path is not None:
        return None
    if config.init_from is not None or num_parameters >= SMALL_PARAMETERS:
        return None
    words = f"{task_flags(config, world)} --model {shlex.quote(config.model.name)}"
    return (
        f"a model of {num_parameters / 1e9:.2g} billion weights rarely earns a reward by chance: "
        f"first `searchrl sft {words}`, then train with --init-from RUN"
    )
