"""The forecast: what a training run will take, and whether it fits.

Owns the one prediction, from a model's `footprint` and a config. What is free on this machine and
what a run really took is `machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from searchrl.algorithms.record import Algorithm
from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import Footprint, find_footprint, optimizer_bytes
from searchrl.engine.memory.machine import available, peak_memory
from searchrl.engine.memory.plan import MemoryPlan, Part, format_bytes
from searchrl.engine.memory.remedy import find_remedy
from searchrl.engine.model.head import chunk_rows
from searchrl.engine.model.loading import ResolvedModel
from searchrl.engine.sampling.slot_generator import pass_tokens
from searchrl.errors import PolicyError


def tell_peak(plan: MemoryPlan | str, device: torch.device, on_note: Callable[[str], None]) -> None:
    """Say what was taken of a GPU since `watch_memory`, beside the plan."""
    if isinstance(plan, MemoryPlan) and device.type == "cuda":
        peak = peak_memory(device)
        on_note(f"memory: predicted {format_bytes(plan.total)}, peak {format_bytes(peak)}")


def watch_memory(
    config: RunConfig,
    model: ResolvedModel,
    device: torch.device,
    algorithm: Algorithm,
    num_processes: int = 1,
    presets: Iterable[tuple[str, RunConfig]] = (),
) -> MemoryPlan | str:
    """Plan a training run and measure from here on; the plan, or why there is none.

    PolicyError, with settings that take less, if it cannot fit.
    """
    plan = foresee_memory(
        *(config, model, device, algorithm),
        num_processes=num_processes,
        is_offline=False,
        presets=presets,
    )
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
    algorithm: Algorithm | None,
    *,
    room: int | None = None,
    num_processes: int = 1,
    is_offline: bool = True,
    presets: Iterable[tuple[str, RunConfig]] = (),
) -> MemoryPlan | str:
    """Predict a training run on a device, or say why that cannot be done.

    Args:
        algorithm: what is trained beside the policy; None: a cold start.
        room: bytes that a GPU on another machine has for tensors; None: this machine is asked.
        num_processes: that train together, each on a device of its own; the plan is of one.
        is_offline: read local files only.
        presets: see `find_remedy`, which is asked where the run does not fit.
    """
    counted: dict[str, Footprint] = {}

    def predict_one(one: RunConfig) -> MemoryPlan:
        # What the plan itself looks at changes no count.
        bare = {"quantize": "none", "gradient_checkpointing": False}
        name, head_size = str(one.model.model_copy(update=bare)), 0
        if name not in counted:
            counted[name] = find_footprint(one.model, model, device, is_offline=is_offline)
        if algorithm is not None and algorithm.critic is not None:
            with torch.device("meta"):
                head = algorithm.critic.make(counted[name].hidden_size)
            head_size = sum(parameter.numel() for parameter in head.parameters())
        return predict(
            one,
            counted[name],
            device,
            available=room,
            num_processes=num_processes,
            has_reference=algorithm is not None and algorithm.needs_reference(one.algorithm),
            head_size=head_size,
            is_cold_start=algorithm is None,
        )

    room = available(device) if room is None else room
    try:
        plan = predict_one(config)
    except PolicyError as error:
        return f"not predicted ({error})"
    if plan.fits:
        return plan
    remedy, has_remedy = find_remedy(config, predict_one, presets)
    return replace(plan, remedy=remedy, has_remedy=has_remedy)


def predict(
    config: RunConfig,
    footprint: Footprint,
    device: torch.device,
    *,
    available: int | None,
    num_processes: int = 1,
    has_reference: bool = False,
    head_size: int = 0,
    is_cold_start: bool = False,
) -> MemoryPlan:
    """The plan of a config, on a device that need not be here."""
    limits = config.rollout
    # Evaluations have slots of their own, one engine at a time.
    num_slots = max(0 if is_cold_start else limits.batch_size, config.eval.batch_size)
    length = min(config.context_tokens, footprint.max_positions)
    num_rows = limits.prompts_per_step * limits.group_size
    micro_batch_tokens = config.optim.micro_batch_tokens
    if is_cold_start:
        num_rows = max(stage.batch_size for stage in config.sft.stages)
        micro_batch_tokens = config.sft.micro_batch_tokens
    tokens = max(length, min(micro_batch_tokens, num_rows * length))
    per_slot = (length + 1) * footprint.cache_per_token
    extended = max(length, min(pass_tokens(device), num_slots * length))
    logits = 4 * footprint.vocab_size * num_slots
    layers, saved = footprint.num_layers, footprint.saved_layer_per_token
    is_checkpointing = config.model.gradient_checkpointing
    kept = (footprint.hidden_per_token if is_checkpointing else saved) * layers
    in_layer = footprint.work_per_token + (saved if is_checkpointing else 0)
    rows = min(tokens, chunk_rows(footprint.vocab_size, device))
    chunk = 4 * footprint.vocab_size * rows
    is_full = not footprint.is_lora
    is_nf4 = config.model.quantize == "nf4"
    weights = footprint.nf4_weights if is_nf4 else footprint.plain_weights
    trained = sum(footprint.trained_sizes) * footprint.trained_itemsize
    moments = optimizer_bytes(
        footprint.trained_sizes,
        footprint.trained_itemsize,
        is_8bit=config.optim.optimizer == "adamw8bit" and not is_cold_start,
    )
    is_sharded = num_processes > 1 and config.engine.sharding == "fsdp2"
    num_shards = num_processes if is_sharded else 1
    adapters = 0 if is_full else trained
    rest = weights - layers * footprint.layer_weights
    in_pass = (2 + is_full) * footprint.layer_weights + (1 + is_full) * rest
    is_whole = is_sharded and config.engine.is_sampled_here
    reference = weights if has_reference and is_full else 0
    parts = [
        Part("weights", weights // num_shards, "always", "NF4" if is_nf4 else "as loaded"),
        Part("adapters", adapters // num_shards, "always", "LoRA"),
        Part("reference", reference // num_shards, "always", "for the KL"),
        Part("gathered weights", is_whole * (weights + adapters), "sampling", "in each process"),
        Part("gathered layers", is_sharded * in_pass, "update", "two, embedding and head"),
        Part("value head", 4 * 5 * head_size, "always", "weights, gradients and moments in fp32"),
        Part(
            "optimiser state",
            moments // num_shards,
            "always",
            "adamw" if is_cold_start else config.optim.optimizer,
        ),
        Part(
            "KV slots",
            num_slots * per_slot,
            "sampling",
            f"{num_slots} dialogues of {length:,} tokens",
        ),
        Part(
            "sampling",
            4 * logits + extended * (footprint.work_per_token + 2 * footprint.hidden_per_token),
            "sampling",
            f"logits of a token each; {extended:,} tokens of prompts in a layer",
        ),
        Part("gradients", 2 * trained // num_shards, "update", "of a micro-batch, and their sum"),
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
    return MemoryPlan(
        tuple(part for part in parts if part.num_bytes),
        available,
        num_slots=num_slots,
        micro_batch_tokens=micro_batch_tokens,
        is_checkpointing=is_checkpointing,
        quantize=config.model.quantize,
        is_cold_start=is_cold_start,
        num_processes=num_processes,
        is_sharded=is_sharded,
    )
