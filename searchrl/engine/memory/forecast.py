"""The forecast: what a training run will take, whether it fits, and what would make it fit.

Owns the one prediction, from a model's `footprint` and a config, and the search for settings that
fit. What is free on this machine and what a run really took is `machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import torch

from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import Footprint, find_footprint, optimizer_bytes
from searchrl.engine.memory.machine import available, peak_memory
from searchrl.engine.memory.plan import MemoryPlan, Part, Settings, format_bytes
from searchrl.engine.model.head import chunk_rows
from searchrl.engine.model.loading import ResolvedModel
from searchrl.errors import PolicyError

EXTEND_TOKENS = 8192
"""Most tokens of one pass over prompts or observations: `SlotGenerator`'s default."""

_SMALLEST_MICRO_BATCH = 512


def tell_peak(plan: MemoryPlan | str, device: torch.device, on_note: Callable[[str], None]) -> None:
    """Say what was taken of a GPU since `watch_memory`, beside the plan."""
    if isinstance(plan, MemoryPlan) and device.type == "cuda":
        peak = peak_memory(device)
        on_note(f"memory: predicted {format_bytes(plan.total)}, peak {format_bytes(peak)}")


def watch_memory(
    config: RunConfig, model: ResolvedModel, device: torch.device, *, has_reference: bool
) -> MemoryPlan | str:
    """Plan a training run that is about to begin, and measure from here on.

    Returns:
        The plan, or why there is none.

    Raises:
        PolicyError: if it cannot fit; names settings that would.
    """
    plan = foresee_memory(config, model, device, has_reference=has_reference, is_offline=False)
    if isinstance(plan, MemoryPlan) and plan.available is not None and not plan.fits:
        parts = sorted(plan.parts, key=lambda part: -part.num_bytes)[:4]
        largest = ", ".join(f"{part.name} {format_bytes(part.num_bytes)}" for part in parts)
        raise PolicyError(
            f"this run needs about {format_bytes(plan.total)} on {device}, where "
            f"{format_bytes(plan.available)} are available ({largest}). {plan.remedy}"
        )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return plan


def foresee_memory(
    config: RunConfig,
    model: ResolvedModel,
    device: torch.device,
    *,
    has_reference: bool,
    room: int | None = None,
    is_offline: bool = True,
) -> MemoryPlan | str:
    """Predict a training run on a device, or say why that cannot be done.

    Args:
        config: resolved.
        model: its weights.
        device: where it would train.
        has_reference: whether the algorithm compares with the weights it began with (KL).
        room: bytes that a GPU on another machine has for tensors; None: this machine is asked.
        is_offline: read local files only.
    """
    try:
        footprint = find_footprint(config.model, model, device, is_offline=is_offline)
    except PolicyError as error:
        return f"not predicted ({error})"
    room = available(device) if room is None else room
    plan_for = partial(
        predict, config, footprint, device, available=room, has_reference=has_reference
    )
    plan = plan_for(Settings.of(config))
    if plan.fits:
        return plan
    tried = [plan_for(one) for one in _smaller(plan.settings, footprint)]
    if found := next((one for one in tried if one.fits), None):
        return replace(plan, remedy=f"It would fit with {_flags(found.settings, config)}")
    least = min(tried, key=lambda one: one.total)
    remedy = (
        f"Even with {_flags(least.settings, config) or 'the smallest settings'} it needs "
        f"{format_bytes(least.total)}: choose a smaller model with --model, lower "
        "rollout.max_total_tokens, or free memory"
    )
    return replace(plan, remedy=remedy)


def predict(
    config: RunConfig,
    footprint: Footprint,
    device: torch.device,
    settings: Settings,
    *,
    available: int | None,
    has_reference: bool = False,
) -> MemoryPlan:
    """The plan of a config with other settings, on a device that need not be here."""
    limits = config.rollout
    length = min(limits.max_total_tokens, config.model.max_context, footprint.max_positions)
    in_step = limits.prompts_per_step * limits.group_size * length
    tokens = max(length, min(settings.micro_batch_tokens, in_step))
    per_slot = (length + 1) * footprint.cache_per_token
    extended = max(length, min(EXTEND_TOKENS, settings.num_slots * length))
    logits = 4 * footprint.vocab_size * settings.num_slots
    layers, saved = footprint.num_layers, footprint.saved_layer_per_token
    is_checkpointing = settings.is_checkpointing
    kept = (footprint.hidden_per_token if is_checkpointing else saved) * layers
    in_layer = footprint.work_per_token + (saved if is_checkpointing else 0)
    rows = min(tokens, chunk_rows(footprint.vocab_size, device))
    chunk = 4 * footprint.vocab_size * rows
    is_full = not footprint.is_lora
    is_nf4 = settings.quantize == "nf4"
    weights = footprint.nf4_weights if is_nf4 else footprint.plain_weights
    trained = footprint.trained_bytes
    moments = optimizer_bytes(
        footprint.trained_sizes,
        footprint.trained_itemsize,
        is_8bit=config.optim.optimizer == "adamw8bit",
    )
    parts = [
        Part("weights", weights, "always", "NF4" if is_nf4 else "as loaded"),
        Part("adapters", 0 if is_full else trained, "always", "LoRA"),
        Part("reference", weights if has_reference and is_full else 0, "always", "for the KL"),
        Part("optimiser state", moments, "always", config.optim.optimizer),
        Part(
            "KV slots",
            settings.num_slots * per_slot,
            "sampling",
            f"{settings.num_slots} dialogues of {length:,} tokens",
        ),
        Part(
            "sampling",
            4 * logits + extended * (footprint.work_per_token + 2 * footprint.hidden_per_token),
            "sampling",
            f"logits of a token each; {extended:,} tokens of prompts in a layer",
        ),
        Part("gradients", 2 * trained, "update", "of a micro-batch, and their sum"),
        Part(
            "activations",
            tokens * (kept + footprint.saved_rest_per_token),
            "update",
            f"{'inputs of all layers' if is_checkpointing else 'of all layers'}, {tokens:,} tokens",
        ),
        Part(
            "layer",
            tokens * in_layer,
            "layers",
            f"of one layer at a time{', computed again' if is_checkpointing else ''}",
        ),
        Part(
            "head chunk",
            # Logits, their log-softmax and its exponential; slopes; a trained head's gradient.
            3 * chunk + footprint.hidden_per_token * (2 * tokens + footprint.vocab_size * is_full),
            "head",
            "logits of some rows at a time",
        ),
    ]
    return MemoryPlan(tuple(part for part in parts if part.num_bytes), settings, available)


def _smaller(now: Settings, footprint: Footprint) -> list[Settings]:
    """Settings that take less, those that cost a run least first."""
    slots = _halves(now.num_slots, 1)
    tokens = _halves(now.micro_batch_tokens, _SMALLEST_MICRO_BATCH)
    recomputes = [now.is_checkpointing] if now.is_checkpointing else [False, True]
    weights = [now.quantize]
    if now.quantize == "none" and footprint.is_lora:
        weights.append("nf4")

    def cost(one: Settings) -> int:
        # Smaller batches are slower, recomputing more so; four bits change what is trained.
        return (
            slots.index(one.num_slots)
            + tokens.index(one.micro_batch_tokens)
            + 3 * (one.is_checkpointing != now.is_checkpointing)
            + 6 * (one.quantize != now.quantize)
        )

    return sorted(map(Settings._make, product(slots, tokens, recomputes, weights)), key=cost)


def _halves(number: int, least: int) -> list[int]:
    """A number, its half and so on, down to `least`."""
    return [number, *_halves(max(least, number // 2), least)] if number > least else [number]


def _flags(settings: Settings, config: RunConfig) -> str:
    """How to ask for settings on the command line, where they differ from the config's."""
    rollout, evaluation = config.rollout.batch_size, config.eval.batch_size
    pairs = (
        ("rollout.batch_size", min(rollout, settings.num_slots), rollout),
        ("eval.batch_size", min(evaluation, settings.num_slots), evaluation),
        ("optim.micro_batch_tokens", settings.micro_batch_tokens, config.optim.micro_batch_tokens),
        (
            "model.gradient_checkpointing",
            str(settings.is_checkpointing).lower(),
            str(config.model.gradient_checkpointing).lower(),
        ),
        ("model.quantize", settings.quantize, config.model.quantize),
    )
    return " ".join(f"--set {name}={value}" for name, value, now in pairs if value != now)
