"""Metric histories to try alarms on: of a run that learns, short ones, ones with oddities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from searchrl.config import build_config
from searchrl.contracts.history import History


def make_history(
    *, phase: str = "train", history: History | None = None, **curves: Sequence[float | None]
) -> History:
    """A history of some curves, step 1 being the first value of each; None is a hole.

    `phase` is `train`, or `during` for evaluations; `history` is one to add to.

    >>> make_history(entropy=[0.5, 0.4]).curve("entropy")[-1].value
    0.4
    """
    history = history or History(build_config().to_dict())
    for step, values in enumerate(zip_longest(*curves.values()), 1):
        here = {name: one for name, one in zip(curves, values, strict=True) if one is not None}
        metrics = {name: {"value": value, "n": 64} for name, value in here.items()}
        history.add(step, phase, metrics)
    return history


HEALTHY_STEPS = 60
"""Steps of the run that learns."""


def healthy_history(upto: int = HEALTHY_STEPS) -> History:
    """A run that learns, up to a step: the reward rises, the entropy falls, some groups die."""
    history = History(build_config().to_dict(), weights={"": {"format": 1.0, "em": 1.0}})
    for step in range(1, upto + 1):
        done = step / HEALTHY_STEPS
        noise = 0.03 * math.sin(7.0 * step)
        values = {
            "reward": 1.1 + 0.8 * done + noise,
            "format": 0.97 + noise / 2,
            "em": 0.13 + 0.8 * done + noise / 2,
            "searched": min(1.0, 0.4 + done + noise),
            "searches": 0.5 + done,
            "turns": 1.6 + done,
            "model_tokens": 30.0 + 40.0 * done,
            "truncated": 0.05 + noise,
            "empty_searches": 0.1 + noise,
            "failed_retrieval": 0.0,
            "failed": 0.0,
            "dead_groups": 1.0 if step % 9 == 0 else 0.25 + 0.5 * done,
            "entropy": 0.4 * (1.0 - 0.9 * done),
            "good_logp": -0.3 * (1.0 - 0.9 * done),
            "kl": 0.05 * done,
            "approx_kl": 1e-12,
            "mismatch": 2e-7,
            "mismatch_k3": 1e-12,
            "grad_norm": 1.5 + noise,
            "loss": 1e-8,
            "skipped_steps": 0.0,
            "nonfinite_frac": 0.0,
            "sample_s": 2.0 + noise,
            "update_s": 1.0 + noise,
            "tokens_per_s": 900.0 + 100.0 * noise,
            "lr": 1e-4,
        }
        metrics = {name: {"value": value, "n": 64} for name, value in values.items()}
        history.add(step, "train", metrics)
        if step % 10 == 0:
            held_out = {"reward": 1.1 + 0.8 * done, "em": 0.1 + 0.8 * done, "format": 0.98}
            measured = {
                name: {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 64}
                for name, value in held_out.items()
            }
            history.add(step, "during", measured)
    return history


def sample_histories() -> dict[str, History]:
    """Histories for alarms, each under the words that name it in a finding."""
    mixture = History(build_config().to_dict(), tasks=("corpus", "gym:x/y"))
    for step in range(1, 31):
        values = {"reward": 1.0, "corpus/reward": 0.5, "gym:x/y/reward": 1.5}
        mixture.add(step, "train", {name: {"value": value} for name, value in values.items()})
    return {
        "a history without any step": History(),
        "a history of one step": make_history(reward=[1.0], entropy=[0.3]),
        "a history with holes": make_history(
            reward=[1.0, None, 1.2, None] * 10, entropy=[None, 0.3] * 20, dead_groups=[1.0] * 40
        ),
        "a history of values that are not finite": make_history(
            reward=[math.nan, math.inf, -math.inf] * 8, loss=[math.nan] * 24
        ),
        "a history of zeros": make_history(
            reward=[0.0] * 40, entropy=[0.0] * 40, model_tokens=[0.0] * 40
        ),
        "a history of huge values": make_history(
            reward=[1e300, -1e300] * 15, kl=[1e300] * 30, mismatch=[1e12] * 30
        ),
        "a history of several tasks": mixture,
        "the history of a run that learns": healthy_history(),
    }
