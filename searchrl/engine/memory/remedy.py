"""The smallest change with which a training run fits: each candidate is predicted, none is guessed.

Owns the order: a ready preset; smaller batches, which only cost time; then settings that cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from searchrl.config import RunConfig, build_config, parse_sets
from searchrl.engine.memory.plan import MemoryPlan, format_bytes

_TOKENS = 128
"""Micro-batches are named in multiples of so many tokens."""


def find_remedy(
    config: RunConfig,
    predict: Callable[[RunConfig], MemoryPlan],
    presets: Iterable[tuple[str, RunConfig]] = (),
) -> tuple[str, bool]:
    """A sentence that names a change with which a run fits, and whether there is one.

    `presets` are names of ready ones, and the config with each below what the user wrote.
    """
    ready = [(plan, name) for name, other in presets if (plan := predict(other)).fits]
    if ready:  # the one that takes away least
        plan, name = max(ready, key=lambda pair: pair[0].total)
        return f"It fits with --set preset={name} ({format_bytes(plan.total)})", True
    plan = predict(config)
    switches = [*_switches(config, plan)]
    for count in range(len(switches) + 1):
        for chosen in combinations(switches, count):
            settings = dict(chosen)
            settings |= _smaller_batches(_changed(config, settings), predict)
            if settings and (plan := predict(_changed(config, settings))).fits:
                words = " ".join(f"--set {word}" for word in _words(settings))
                return f"It fits with {words} ({format_bytes(plan.total)})", True
    told = "No setting makes it fit; choose a smaller model with --model"
    if any(part.name == "gathered weights" for part in plan.parts):
        told += ", or have a server sample (engine.generator)"
    return told, False


def _switches(config: RunConfig, plan: MemoryPlan) -> Iterator[tuple[str, Any]]:
    has_adapters = any(part.name == "adapters" for part in plan.parts)
    is_plain = config.model.quantize == "none" and config.optim.optimizer == "adamw"
    if not config.model.gradient_checkpointing:
        yield "model.gradient_checkpointing", True
    if plan.num_processes > 1 and is_plain and not plan.is_sharded:
        yield "engine.sharding", "fsdp2"
    elif is_plain and not plan.is_sharded and not plan.is_cold_start and not has_adapters:
        yield "optim.optimizer", "adamw8bit"
    elif is_plain and not plan.is_sharded and has_adapters:
        yield "model.quantize", "nf4"


def _smaller_batches(
    config: RunConfig, predict: Callable[[RunConfig], MemoryPlan]
) -> dict[str, int]:
    """The largest batches that fit, of each phase that needs smaller ones and can have them."""
    plan = predict(config)
    room = (plan.available or 0) - plan.phases["always"]
    sizes, section = {"eval.batch_size": config.eval.batch_size}, "sft"
    if not plan.is_cold_start:
        sizes, section = {"rollout.batch_size": config.rollout.batch_size, **sizes}, "optim"
    tokens = {f"{section}.micro_batch_tokens": plan.micro_batch_tokens}
    settings: dict[str, int] = {}
    for phase, keys, unit in (("sampling", sizes, 1), ("update", tokens, _TOKENS)):
        low, high = 0, max(keys.values()) // unit
        while plan.phases[phase] > room and low < high:
            middle = (low + high + 1) // 2
            tried = {key: min(value, middle * unit) for key, value in keys.items()}
            if predict(_changed(config, tried)).phases[phase] <= room:
                low, settings = middle, settings | tried
            else:
                high = middle - 1
    return settings


def _changed(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    return build_config(config.to_dict(), parse_sets(_words(settings)))


def _words(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={str(value).lower()}" for key, value in settings.items()]
