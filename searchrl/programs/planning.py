"""From what a user said to a resolved plan: device, weights, preset, one config.

Owns the order in which a run is decided. The model decides the preset, and the preset lies under
everything the user wrote, so the model is found first. Callers: `train`, `evaluate`, `sft`,
`agent` and `--dry-run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from searchrl.config import RunConfig, build_config, load_preset
from searchrl.engine.memory.footprint import find_footprint
from searchrl.engine.memory.forecast import ensure_fits, make_plan
from searchrl.engine.memory.machine import PeakMeter
from searchrl.engine.memory.plan import MemoryPlan, describe_peak
from searchrl.engine.model.loading import ResolvedModel, load_policy, resolve_device, resolve_model
from searchrl.engine.model.policy import Policy
from searchrl.errors import ConfigError, PolicyError
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.records import read_records
from searchrl.run_folder import Run

TINY = "tiny"
SMALL_PARAMETERS = 1_700_000_000
"""Below it, models seldom write tags that they have only been told about."""
TINY_PRESET = "tiny"
LARGE_PRESET = "qwen3_4b_lora"


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved run: where the weights come from, and the config with its preset merged in.

    `config.model.name` is the model `auto` became: stored, it means the same wherever it is read.
    """

    config: RunConfig
    model: ResolvedModel
    notes: tuple[str, ...]


def plan_run(*layers: Mapping[str, Any]) -> Plan:
    """Resolve settings layers (later wins) into a plan.

    Raises:
        ConfigError, PolicyError: for wrong keys, unknown presets, missing devices or folders.
    """
    asked = build_config(*layers)
    if asked.preset:
        # It may name the model.
        asked = build_config(load_preset(asked.preset), *layers)
    model = _resolve(asked)
    preset = asked.preset or (TINY_PRESET if model.is_tiny else LARGE_PRESET)
    decided: dict[str, Any] = {"preset": preset}
    if asked.model.name == "auto" and asked.init_from is None:
        # With init_from the folder decides, and it will not change its mind.
        decided["model"] = {"name": TINY if model.is_tiny else model.path}
    config = build_config(load_preset(preset), *layers, decided)
    return Plan(config, model, (model.note,) if model.note else ())


def _resolve(config: RunConfig) -> ResolvedModel:
    return resolve_model(config.model.name, resolve_device(config.device), config.init_from)


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


def resolve_config(
    config: RunConfig | Mapping[str, Any] | None,
    resume: str | Path | None,
    on_note: Callable[[str], None],
) -> RunConfig:
    """The config of a program: a resumed run's own, a resolved one as it is, or settings planned.

    Raises:
        ConfigError, PolicyError, RunFolderError: see `plan_run` and `Run.open`.
    """
    if resume is not None:
        return Run.open(resume).config
    if isinstance(config, RunConfig):
        return config
    plan = plan_run(config or {})
    for note in plan.notes:
        on_note(note)
    return plan.config


def load_run_plugins(
    config: RunConfig, resume: str | Path | None, on_note: Callable[[str], None]
) -> Registry:
    """The plugins of a program; of those a resumed run relies on, it is noted which have changed.

    Raises:
        PluginError: see `load_plugins`.
    """
    registry = load_plugins(
        config.plugins,
        strict=config.strict_plugins,
        recorded=read_records(resume, config.to_dict()),
    )
    for change in registry.changes:
        on_note(change)
    return registry


def plan_memory(
    config: RunConfig, *, has_reference: bool, is_offline: bool = False, must_fit: bool = False
) -> MemoryPlan | str:
    """What training with a resolved config will take, before any weight is loaded.

    Args:
        config: of the run.
        has_reference: whether the algorithm compares with the weights it began with (KL).
        is_offline: read nothing but local files.
        must_fit: refuse a run that does not.

    Returns:
        The plan, or why there is none.

    Raises:
        PolicyError: if it has to fit and cannot; names settings that would.
    """
    device = resolve_device(config.device)
    try:
        footprint = find_footprint(config.model, _resolve(config), device, is_offline=is_offline)
    except PolicyError as error:
        return f"not predicted ({error})"
    plan = make_plan(config, footprint, device, has_reference=has_reference)
    if must_fit:
        ensure_fits(plan, config, footprint, device, has_reference=has_reference)
    return plan


@dataclass(frozen=True, slots=True)
class MemoryWatch:
    """The plan of a run, and the meter that tells how true it was."""

    plan: MemoryPlan | str
    meter: PeakMeter

    def tell_peak(self, on_note: Callable[[str], None]) -> None:
        """Compare what was taken until now with the plan, where both are known."""
        text = describe_peak(self.plan, self.meter.peak_bytes())
        if text is not None:
            on_note(text)


def watch_memory(config: RunConfig, has_reference: bool) -> MemoryWatch:
    """Plan a training run that is about to begin, and measure from here on.

    Raises:
        PolicyError: if it cannot fit; names settings that would.
    """
    plan = plan_memory(config, has_reference=has_reference, must_fit=True)
    return MemoryWatch(plan, PeakMeter(resolve_device(config.device)))


def first_advice(config: RunConfig, policy: Policy) -> str | None:
    """What somebody should know who is about to train an untaught small model with rewards."""
    num_parameters = policy.num_parameters[1]
    is_taught = policy.is_tiny or _resolve(config).adapter_path is not None
    if is_taught or config.init_from is not None or num_parameters >= SMALL_PARAMETERS:
        return None
    env = config.tasks[0].env.name
    return (
        f"a model of {num_parameters / 1e9:.2g} billion weights seldom earns a reward by chance: "
        f"first `searchrl sft --env {env} --model {config.model.name}`, then train with "
        "--init-from RUN"
    )


def load_planned_policy(config: RunConfig, *, trainable: bool) -> Policy:
    """Load the policy a resolved config names.

    Raises:
        PolicyError: if the weights cannot be had; says what to do.
    """
    set_threads(config)
    # Everything random in sampling has its own keys; this seeds a new adapter's weights.
    torch.manual_seed(config.seed)
    device = resolve_device(config.device)
    return load_policy(config.model, _resolve(config), device, trainable=trainable)
